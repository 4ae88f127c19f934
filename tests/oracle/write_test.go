package oracle

import "testing"

func TestFencedWriteNeedsTheHold(t *testing.T) {
	for name, c := range map[string]struct {
		who  string
		want string
	}{
		"of the holder":     {"a1", ""},
		"of a waiter":       {"b1", "b1 wrote at revision 4, at which it did not hold"},
		"of another holder": {"c1", "c1 wrote at revision 4, at which it did not hold"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			a := s.at(1000).queue("a1", writes)
			ha := s.grant(a)
			b := s.at(1500).queue("b1", writes)
			s.at(1600).put(DataKey(writes.Prefix), c.who, 0)
			s.at(2000).release(a, ha)
			hb := s.at(2010).grant(b)
			s.put(DataKey(writes.Prefix), "b1", 0)
			s.at(3000).release(b, hb)
			s.check(t, c.want)
			if n := s.Judge().Counts["fenced writes"]; n != 2 {
				t.Errorf("%d writes", n)
			}
		})
	}
}
