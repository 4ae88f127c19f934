package sending

import "testing"

// A session may owe as many answers as it has calls in flight.
func TestCallsInFlightMayOweMore(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(d *debt){
		"three calls":                 func(*debt) {},
		"two of five have ended":      func(d *debt) { d.add(0, 2); d.ended(); d.ended() },
		"three calls, and one answer": func(d *debt) { d.answered() },
	} {
		d := &debt{calls: 3}
		change(d)
		for i, want := range []int{5, 5, 1} {
			if n := d.borrow(5); n != want {
				t.Errorf("%s: time %d: %d copies, want %d", name, i, n, want)
			}
		}
	}
}

func TestPriceOfARoundOfCopies(t *testing.T) {
	t.Parallel()
	for endpoints, want := range map[int]int{1: 1, 2: 2, 3: 3, 4: 4, 5: 2, 6: 3, 7: 2} {
		if n := price(endpoints); n != want {
			t.Errorf("%d endpoints: %d answers, want %d", endpoints, n, want)
		}
	}
}
