package oracle

import "testing"

func TestGrantNeedsItsEntries(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *story)
		want   string
	}{
		"of another queue": {func(s *story) { s.Holds[0].Parts = []Part{LockPart("y", false)} },
			"no entry below holdfast/lock/y"},
		"of another mode":     {func(s *story) { s.Holds[0].Parts = []Part{reads} }, "no entry below holdfast/lock/x"},
		"of another lease":    {func(s *story) { s.Holds[0].Lease = leaseOf("b") }, "no entry below holdfast/lock/x"},
		"of another revision": {func(s *story) { s.Holds[0].Token++ }, "no entry below holdfast/lock/x"},
		"already deleted": {func(s *story) {
			h := s.Holds[1]
			h.AcquiredAt, h.Granted, h.First = 5, s.at(3000).now, s.now
		}, "was missing"},
		"not the first": {func(s *story) { s.Holds[1].AcquiredAt = 3 }, "was ahead"},
		"before it was so": {func(s *story) { s.Holds[1].Granted = s.at(1900).now; s.Holds[1].First = s.at(2001).now },
			"held 100ms before revision 4"},
	} {
		t.Run(name, func(t *testing.T) {
			s := turns()
			c.change(s)
			s.check(t, c.want)
		})
	}
}

func TestReadersAndWritersInOrder(t *testing.T) {
	for name, c := range map[string]struct {
		behind Part
		want   string
	}{
		"a reader holds beside readers":    {reads, ""},
		"a writer waits for readers ahead": {writes, "was ahead"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			a := s.at(1000).queue("a1", reads)
			ha := s.grant(a)
			b := s.at(1500).queue("b1", c.behind)
			hb := s.grant(b)
			s.at(1510).release(b, hb)
			ha.First, ha.Last = 0, 0 // for the rule of pairs there is no hold
			s.at(2000).delete(a, ByRequest)
			s.check(t, c.want)
		})
	}
}
