package oracle

import (
	"testing"
	"time"
)

func TestEntryAtTheFrontSoonHasAHolder(t *testing.T) {
	const front = 5000 // when nothing is ahead anymore
	cut := func(process string, from, to int) []Fault {
		return []Fault{{Process: process, From: time.Duration(from) * time.Second, To: time.Duration(to) * time.Second}}
	}
	for name, c := range map[string]struct {
		granted, released, gone int // 0: never granted
		faults                  []Fault
		ended                   int // when the session gave up its lease
		want                    string
	}{
		"held soon":               {granted: front + 7900, released: front + 9000, gone: front + 9000},
		"held late":               {granted: front + 8100, released: front + 9000, gone: front + 9000, want: "for 8.1s"},
		"held for long":           {granted: front + 100, released: front + 60_000, gone: front + 60_000},
		"left behind":             {granted: front + 100, released: front + 200, gone: front + 8300, want: "for 8.1s"},
		"never held":              {gone: front + 8100, want: "for 8.1s"},
		"gives up":                {gone: front + 7900},
		"while cut off":           {gone: front + 8100, faults: cut("b", 6, 7)},
		"in the cluster":          {gone: front + 8100, faults: cut("", 6, 7)},
		"another is cut off":      {gone: front + 8100, faults: cut("a", 6, 7), want: "8.1s"},
		"two short faults":        {gone: front + 10_200, faults: append(cut("b", 6, 7), cut("b", 9, 10)...), want: "8.2s"},
		"its lease was lost":      {gone: front + 9000, ended: front + 7000},
		"its lease is lost later": {gone: front + 20_000, ended: front + 8100, want: "for 8.1s"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			s.Faults = c.faults
			a := s.at(1000).queue("a1", writes)
			ha := s.grant(a)
			b := s.at(2000).queue("b1", writes)
			if c.ended != 0 {
				s.Leases[leaseOf("b")] = Lease{Process: "b", Ended: s.at(c.ended).now}
			}
			s.at(front).release(a, ha)
			if c.granted != 0 {
				h := s.at(c.granted).grant(b)
				s.at(c.released).until(h)
			}
			s.at(c.gone).delete(b, ByRequest)
			s.check(t, c.want)
		})
	}
}

func TestEntryThatMinHoldKeepsNeedsNoHolder(t *testing.T) {
	s := newStory()
	a := s.at(1000).queue("a1", writes)
	h := s.grant(a)
	s.at(2000).until(h)
	s.write(a, value("a1"), 99)
	s.at(60_000).delete(a, ByLease)
	s.check(t, "")
}

func TestRestOfASetWhoseEntryWasDeletedIsFound(t *testing.T) {
	for until, want := range map[int]string{2000 + 37_900: "", 2000 + 38_100: "for 38.1s without a holder"} {
		s := newStory()
		s.Wanted = map[string][]Part{"a1": {writes, LockPart("y", false)}}
		a := s.at(1000).queue("a1", writes, LockPart("y", false))
		s.at(2000).remove(a.keys[1], ByDeletion)
		s.at(until).remove(a.keys[0], ByRequest)
		s.check(t, want)
	}
}

func TestPermitThatFitsSoonHasAHolder(t *testing.T) {
	for name, c := range map[string]struct {
		limitAt int    // when the limit becomes 3
		lowerAt int    // when it becomes 2 again
		until   int    // when the waiter leaves
		want    string // all in ms
	}{
		"does not fit":          {until: 20_000},
		"fits for long":         {limitAt: 5000, until: 13_100, want: "for 8.1s"},
		"fits for a while":      {limitAt: 5000, until: 12_900},
		"fits, and then not":    {limitAt: 5000, lowerAt: 12_900, until: 20_000},
		"fits, and not in time": {limitAt: 5000, lowerAt: 13_100, until: 20_000, want: "for 8.1s"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			a := s.at(1000).queuePermit("a1", 2)
			ha := s.grant(a)
			b := s.at(2000).queuePermit("b1", 1)
			if c.limitAt != 0 {
				s.at(c.limitAt).put(LimitKey("x"), "3", 0)
			}
			if c.lowerAt != 0 {
				s.at(c.lowerAt).put(LimitKey("x"), "2", 0)
			}
			s.at(c.until).delete(b, ByRequest)
			s.at(30_000).release(a, ha)
			s.check(t, c.want)
		})
	}
}
