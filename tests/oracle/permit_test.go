package oracle

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/layout"
)

// queuePermit puts the entry of a permit.
func (s *story) queuePermit(who string, weight int) attempt {
	return s.queueAt(who, s.entry(who, permit, weight))
}

// queueTurn puts a turn, which waits.
func (s *story) queueTurn(who string, weight int) attempt {
	return s.queueAt(who, strings.Replace(s.entry(who, permit, weight), "/@/", "/@turn/", 1))
}

func (s *story) queueAt(who, key string) attempt {
	s.rev++
	a := attempt{who: who, rev: s.rev, parts: []Part{permit}, keys: []string{key}}
	s.putMore(a.keys[0], value(who), leaseOf(who))
	s.Leases[leaseOf(who)] = Lease{Process: who[:1]}
	return a
}

// mark puts a turn a second time: it is a permit from then on.
func (s *story) mark(a attempt) {
	s.write(a, valueOf(layout.Value{Identity: layout.Identity{Owner: a.who}}), leaseOf(a.who))
}

func TestPermitIsAdmittedIfItFits(t *testing.T) {
	for name, c := range map[string]struct {
		weight int
		limit  string
		waits  bool // until the first has left
		want   string
	}{
		"it fits":                      {weight: 1},
		"one more than the limit":      {weight: 2, want: "1 ahead, limit 2"},
		"the limit was raised before":  {weight: 2, limit: "3"},
		"the limit was lowered before": {weight: 1, limit: "1", want: "1 ahead, limit 1"},
		"it waits":                     {weight: 2, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			if c.limit != "" {
				s.put(LimitKey("x"), c.limit, 0)
			}
			a := s.at(1000).queuePermit("a1", 1)
			ha := s.grant(a)
			queue := s.at(1500).queuePermit
			if c.waits {
				queue = s.queueTurn
			}
			b := queue("b1", c.weight)
			if c.waits {
				s.at(2000).release(a, ha)
				s.mark(b)
			}
			hb := s.at(2000).grant(b)
			hb.First = 0 // what is held together is another rule
			s.at(3000).release(b, hb)
			if !c.waits {
				s.release(a, ha)
			}
			s.check(t, c.want)
			if n := s.Judge().Counts[Waited]; (n == 1) != c.waits {
				t.Errorf("%d have waited", n)
			}
		})
	}
}

func TestPermitsThatAreHeldTogetherFitIntoTheLimit(t *testing.T) {
	const gone = 5000
	for name, c := range map[string]struct {
		cause   Cause
		last    int // of the first permit
		raised  int // when the limit is raised, or 0
		fault   bool
		gap     time.Duration
		newest  bool // another one is held that queued after the deletion
		want    string
		besides string
	}{
		"told before":           {cause: ByRevocation, last: gone + 900},
		"together":              {cause: ByRevocation, last: gone + 1000, want: "3 are held together"},
		"the limit was raised":  {cause: ByRevocation, last: gone + 1000, raised: 500},
		"the limit rises later": {cause: ByRevocation, last: gone + 1000, raised: gone + 1500, want: "3 are held together"},
		"a deletion by hand":    {cause: ByDeletion, last: gone + 1000, want: "3 are held together"},
		"cut off":               {cause: ByDeposed, last: gone + 1000, fault: true},
		"it did not run":        {cause: ByDeposed, last: gone + 1000, gap: 1001 * time.Millisecond},
		"beside a newcomer":     {cause: ByRevocation, last: gone + 1000, newest: true, want: "3 are held together"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			if c.raised != 0 && c.raised < gone {
				s.at(c.raised).put(LimitKey("x"), "3", 0)
				s.put(LimitKey("x"), "2", 0)
			}
			if c.fault {
				s.Faults = []Fault{{Process: "a", From: s.at(gone + 10).now, To: s.at(gone + 20).now}}
			}
			a := s.at(1000).queuePermit("a1", 1)
			ha := s.grant(a)
			ha.Gap = c.gap
			weight := 2
			if c.newest {
				weight = 1
			}
			b := s.at(2000).queuePermit("b1", weight)
			s.at(gone).delete(a, c.cause)
			var d attempt
			var hd *Hold
			if c.newest {
				d = s.at(gone+100).queuePermit("d1", 1)
				hd = s.grant(d)
			}
			s.mark(b)
			s.at(c.last).until(ha)
			hb := s.at(gone + 1000).grant(b)
			if c.raised > gone {
				s.at(c.raised).put(LimitKey("x"), "3", 0)
			}
			s.at(6900).release(b, hb)
			if c.newest {
				s.release(d, hd)
			}
			s.check(t, c.want)
		})
	}
}

func TestStandingPermitsNeverExceedTheLimit(t *testing.T) {
	s := newStory()
	a, b := s.at(1000).queuePermit("a1", 1), s.queuePermit("b1", 1)
	ha, hb := s.grant(a), s.grant(b)
	ha.AcquiredAt, hb.AcquiredAt = a.rev, b.rev
	c := s.at(2000).queuePermit("c1", 1)
	hc := s.grant(c)
	s.at(3000).release(a, ha)
	s.release(b, hb)
	s.release(c, hc)
	all := s.Judge().Violations
	if len(all) != 2 { // it was admitted, and it is held
		t.Errorf("violations: %q", all)
	}
}
