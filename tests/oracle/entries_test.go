package oracle

import "testing"

func TestEntriesOfAnAttemptArePutTogether(t *testing.T) {
	both := []Part{writes, LockPart("y", false)}
	t.Run("together", func(t *testing.T) {
		s := newStory()
		s.Wanted = map[string][]Part{"a1": both}
		a := s.at(1000).queue("a1", both...)
		s.release(a, s.grant(a))
		s.check(t, "")
	})
	t.Run("apart", func(t *testing.T) {
		s := newStory()
		s.Wanted = map[string][]Part{"a1": both}
		a := s.at(1000).queue("a1", writes)
		s.release(a, s.grant(a))
		s.check(t, "1 entries were put at revision 2, and the attempt has 2")
	})
}

func TestNoTwoAttemptsThatExcludeEachOtherArePutTogether(t *testing.T) {
	for name, c := range map[string]struct {
		a, b Part
		want string
	}{
		"writers":                 {writes, writes, "were put at one revision"},
		"a writer and a reader":   {writes, reads, "were put at one revision"},
		"permits":                 {permit, permit, "were put at one revision"},
		"readers":                 {reads, reads, ""},
		"writers of unlike names": {writes, LockPart("y", false), ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			s.at(1000).queue("a1", c.a)
			s.putMore(s.entry("b1", c.b, 1), value("b1"), leaseOf("b1"))
			s.check(t, c.want)
		})
	}
}
