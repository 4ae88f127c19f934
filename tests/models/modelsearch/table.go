package modelsearch

// A table has the numbers of states by their fingerprints. A search asks it at each step, and then the processor waits
// for memory: once, in a map twice.
type table struct {
	slots []slot // a power of two of them, at most three quarters in use
	count int
}

// A slot is empty if after is 0.
type slot struct {
	of    fingerprint
	after int32 // the number of the state, plus 1
}

func newTable() table { return table{slots: make([]slot, 1024)} }

// number returns the number of a state, and whether it is known. If not, it gets this one.
//
//go:norace
func (t *table) number(f fingerprint, next int32) (n int32, known bool) {
	s := t.slot(f)
	if s.after != 0 {
		return s.after - 1, true
	}
	*s = slot{f, next + 1}
	if t.count++; t.count > len(t.slots)/4*3 {
		t.grow()
	}
	return next, false
}

// slot returns the slot of a fingerprint, or the empty one where it belongs.
//
//go:norace
func (t *table) slot(f fingerprint) *slot {
	last := fingerprint(len(t.slots) - 1)
	for i := f; ; i++ {
		if s := &t.slots[i&last]; s.after == 0 || s.of == f {
			return s
		}
	}
}

//go:norace
func (t *table) grow() {
	old := t.slots
	t.slots = make([]slot, 2*len(old))
	for i := range old {
		if old[i].after != 0 {
			*t.slot(old[i].of) = old[i]
		}
	}
}
