package oracle

import (
	"testing"
	"time"
)

func TestConfirmedReleaseHasRemovedTheEntries(t *testing.T) {
	t.Run("later", func(t *testing.T) {
		s := turns()
		s.Holds[0].Last = s.at(1900).now
		s.Holds[0].Unlocked = s.at(1999).now
		s.check(t, "its release returned nil at 1.999s")
	})
	t.Run("not known", func(t *testing.T) {
		s := turns()
		s.Holds[0].Unlocked = 0
		s.check(t, "")
	})
	t.Run("one of two", func(t *testing.T) {
		s := newStory()
		a := s.at(1000).queue("a1", writes, LockPart("y", false))
		h := s.grant(a)
		s.at(2000).until(h)
		s.remove(a.keys[0], ByRequest)
		h.Unlocked = s.now
		s.at(2100).remove(a.keys[1], ByRequest)
		s.check(t, "holdfast/lock/y/@/")
	})
}

func TestMinHoldKeepsTheName(t *testing.T) {
	for name, c := range map[string]struct {
		gone  int
		cause Cause
		want  string
	}{
		"for as long":             {gone: 5000, cause: ByLease},
		"not for as long":         {gone: 4999, cause: ByLease, want: "free 1ms before MinHold was over"},
		"it was deleted by hand":  {gone: 3000, cause: ByDeletion},
		"its request was to late": {gone: 4000, cause: ByRequest, want: "free 1s before MinHold was over"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			a := s.at(1000).queue("a1", writes)
			h := s.grant(a)
			s.at(2000).until(h)
			h.Unlocked, h.TakenUntil = s.now, 5*time.Second
			s.write(a, value("a1"), 99)
			s.at(c.gone).remove(a.keys[0], c.cause)
			s.check(t, c.want)
			if n := s.Judge().Counts[Taken]; n != 1 {
				t.Errorf("%d names stayed taken", n)
			}
		})
	}
}

// fault returns one that lasts from one second to another.
func fault(process string, from, to int) []Fault {
	return []Fault{{Process: process, From: time.Duration(from) * time.Second, To: time.Duration(to) * time.Second}}
}

func TestReleaseCostsTheNextNoDelay(t *testing.T) {
	for name, c := range map[string]struct {
		granted  int
		queued   int
		cause    Cause
		faults   []Fault
		unsteady []Fault
		key      bool // the session key is deleted before
		third    bool // another entry was ahead
		any      bool // the network may be slow
		want     string
	}{
		"at once":                    {granted: 3900},
		"after the lock delay":       {granted: 4100, want: "granted 1.1s after the release of the only entry"},
		"its watch was not armed":    {granted: 4100, queued: 2500},
		"the lease ended":            {granted: 4100, cause: ByLease},
		"the network failed":         {granted: 4100, faults: fault("b", 2, 3)},
		"the cluster failed":         {granted: 4100, unsteady: fault("", 2, 3)},
		"it failed before":           {granted: 4100, unsteady: fault("", 0, 1), want: "granted 1.1s"},
		"the session ended before":   {granted: 4100, key: true},
		"two were ahead":             {granted: 4100, third: true},
		"where requests may be slow": {granted: 4100, any: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			s.Prompt, s.Faults, s.Unsteady = !c.any, c.faults, c.unsteady
			a := s.at(1000).queue("a1", writes)
			s.put(SessionKey(leaseOf("a")), "", leaseOf("a"))
			ha := s.grant(a)
			var third attempt
			if c.third {
				third = s.queue("c1", writes)
			}
			if c.queued == 0 {
				c.queued = 1500
			}
			b := s.at(c.queued).queue("b1", writes)
			if c.third {
				s.delete(third, ByRequest)
			}
			s.at(3000).until(ha)
			if c.key {
				s.remove(SessionKey(leaseOf("a")), ByLease)
			}
			s.delete(a, c.cause)
			hb := s.at(c.granted).grant(b)
			s.at(5000).release(b, hb)
			s.check(t, c.want)
		})
	}
}
