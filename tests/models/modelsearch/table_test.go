package modelsearch

import "testing"

// Half of the fingerprints belong into slots that others have taken.
func TestTableKeepsEachNumberWhileItGrows(t *testing.T) {
	const count = 5000
	table := newTable()
	of := func(n int32) fingerprint { return fingerprint(n/2)*1000000007 ^ fingerprint(n%2)<<63 }
	for n := range int32(count) {
		if got, known := table.number(of(n), n); known || got != n {
			t.Fatalf("a new fingerprint: %d, %t, want %d, false", got, known, n)
		}
	}
	for n := range int32(count) {
		if got, known := table.number(of(n), count); !known || got != n {
			t.Fatalf("fingerprint of state %d: %d, %t", n, got, known)
		}
	}
	if len(table.slots) < count {
		t.Errorf("%d slots for %d fingerprints", len(table.slots), count)
	}
}
