package lease

import (
	"testing"
	"time"
)

func TestHoldsArePolledBeforeARemovedEntryGoes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ delay, poll, lasts time.Duration }{
		{0, time.Second, 3750 * time.Millisecond},
		{500 * time.Millisecond, 250 * time.Millisecond, 5750 * time.Millisecond},
		{time.Second, 500 * time.Millisecond, 5750 * time.Millisecond},
		{2 * time.Second, time.Second, 5750 * time.Millisecond},
		{time.Minute, time.Second, 63750 * time.Millisecond},
	} {
		poll, told := PollInterval(c.delay), ToldWithin(c.delay)
		if poll != c.poll || told != c.delay+6*time.Second {
			t.Errorf("lock delay %v: polled every %v, told within %v", c.delay, poll, told)
		}
		// The lock delay must fit in, and the last poll may be in flight.
		if lasts := LookLasts(c.delay); lasts != c.lasts || lasts <= c.delay || lasts+2*takes > told {
			t.Errorf("lock delay %v: a look lasts %v, the entry goes after %v", c.delay, lasts, told)
		}
	}
}
