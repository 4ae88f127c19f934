package oracle

import (
	"testing"
	"time"
)

func TestTwoThatExcludeEachOtherAreNotHeldTogether(t *testing.T) {
	const gone = 5000           // when the entry of the first is deleted, in ms
	const granted = gone + 1000 // to the second
	for name, c := range map[string]struct {
		cause     Cause
		newcomer  bool // the second queues after the deletion
		last      int  // the last Check of the first
		late      time.Duration
		fault     [2]int // of the first
		everybody bool   // has the fault
		gap       time.Duration
		slow      bool
		want      string
	}{
		"the first is told before": {cause: ByRevocation, last: granted - 100},
		"together":                 {cause: ByRevocation, last: granted + 1, want: "held together for 1ms"},
		"at one instant":           {cause: ByDeposed, last: granted, want: "held together for 0s"},
		"a newcomer":               {cause: ByRevocation, newcomer: true, last: granted + 1, want: "held together for 1ms"},
		"a newcomer is told first": {cause: ByDeletion, newcomer: true, last: granted - 1},
		"a deletion by hand":       {cause: ByDeletion, last: granted + 1, want: "held together for 1ms"},
		"the first is cut off":     {cause: ByRevocation, last: granted + 1, fault: [2]int{gone + 500, gone + 600}},
		"all are cut off": {cause: ByRevocation, last: granted + 1, fault: [2]int{gone + 500, gone + 600},
			everybody: true},
		"it was cut off before": {cause: ByRevocation, last: granted + 1, fault: [2]int{gone - 100, gone - 1},
			want: "held together"},
		"shortly before it was seen": {cause: ByRevocation, last: granted + 1, fault: [2]int{gone - 100, gone - 1},
			late: time.Second},
		"its process did not run": {cause: ByRevocation, last: granted + 1, gap: 1001 * time.Millisecond},
		"it did not run for half a lock delay": {cause: ByRevocation, last: granted + 1, gap: time.Second,
			want: "held together for 1ms"},
		"its polls were slow": {cause: ByRevocation, last: granted + 1, slow: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			s.Late = c.late
			process := "a"
			if c.everybody {
				process = Everywhere
			}
			s.Faults = []Fault{{Process: process, From: s.at(c.fault[0]).now, To: s.at(c.fault[1]).now}}
			a := s.at(1000).queue("a1", writes)
			ha := s.grant(a)
			ha.Gap, ha.SlowPolls = c.gap, c.slow
			var b attempt
			if !c.newcomer {
				b = s.at(2000).queue("b1", writes)
			}
			s.at(gone).delete(a, c.cause)
			if c.newcomer {
				b = s.at(gone+10).queue("b1", writes)
			}
			s.at(c.last).until(ha)
			hb := s.at(granted).grant(b)
			s.at(7000).release(b, hb)
			s.check(t, c.want)
		})
	}
}

func TestNewcomersAreCounted(t *testing.T) {
	for after, want := range map[int]int{100: 1, 300: 0} {
		s := newStory()
		a := s.at(1000).queue("a1", writes)
		ha := s.grant(a)
		s.at(5000).delete(a, ByRevocation)
		s.at(5050).until(ha)
		b := s.at(5000+after).queue("b1", writes)
		hb := s.at(7000).grant(b)
		s.at(8000).release(b, hb)
		s.check(t, "")
		counts := s.Judge().Counts
		if n := counts[ByForcePrefix+ByRevocation.String()]; n != 1 {
			t.Errorf("%d holds ended by force, want 1", n)
		}
		if n := counts[NewcomersPrefix+ByRevocation.String()]; n != want {
			t.Errorf("queued %d ms after: %d newcomers, want %d", after, n, want)
		}
	}
}

func TestNewcomersAreCountedByKind(t *testing.T) {
	for kind, c := range map[string]struct {
		former   Part
		newcomer []Part
	}{
		"writer":   {reads, []Part{writes}},
		"reader":   {writes, []Part{reads}},
		"set":      {writes, []Part{writes, LockPart("y", false)}},
		"election": {ElectionPart("e"), []Part{ElectionPart("e")}},
		"shard":    {ShardPart("s", 1), []Part{ShardPart("s", 1)}},
		"permit":   {permit, []Part{permit}}, // the limit is 1
	} {
		for last, beside := range map[int]int{6900: 0, 7100: 1} {
			s := newStory()
			s.at(0).put(LimitKey("x"), "1", 0)
			a := s.at(1000).queue("a1", c.former)
			ha := s.grant(a)
			s.at(5000).delete(a, ByRevocation)
			b := s.at(5010).queue("b1", c.newcomer...)
			hb := s.at(7000).grant(b)
			s.at(last).until(ha)
			s.at(8000).release(b, hb)
			counts := s.Judge().Counts
			if n, both := counts[NewcomersOfPrefix+kind], counts[TwoHeldOfPrefix+kind]; n != 1 || both != beside {
				t.Errorf("%s, held until %d ms: %d newcomers, two held %d times, want 1 and %d", kind, last, n, both, beside)
			}
		}
	}
}

func TestNewcomerThatHoldsBesideTheFormerHolderIsCounted(t *testing.T) {
	for last, want := range map[int]int{6900: 0, 7100: 1} {
		s := newStory()
		a := s.at(1000).queue("a1", writes)
		ha := s.grant(a)
		s.at(5000).delete(a, ByRevocation)
		b := s.at(5010).queue("b1", writes)
		hb := s.at(7000).grant(b)
		s.at(last).until(ha)
		s.at(8000).release(b, hb)
		if n := s.Judge().Counts[TwoHeldPrefix+ByRevocation.String()]; n != want {
			t.Errorf("held until %d ms: two held %d times, want %d", last, n, want)
		}
	}
}

// A writer that has become a reader, and a hold that goes on by a ticket, have the entry of the hold before.
func TestNewcomerBesideTheLastOfTwoHoldsByOneEntryIsCounted(t *testing.T) {
	for last, want := range map[int]int{6900: 0, 7100: 1} {
		s := newStory()
		a := s.at(1000).queue("a1", writes)
		s.at(2000).until(s.grant(a))
		ha := s.at(3000).grant(a)
		ha.Who = "a1, attached"
		s.at(5000).delete(a, ByRevocation)
		b := s.at(5010).queue("b1", writes)
		hb := s.at(7000).grant(b)
		s.at(last).until(ha)
		s.at(8000).release(b, hb)
		counts := s.Judge().Counts
		if n := counts[ByForcePrefix+ByRevocation.String()]; n != 1 {
			t.Errorf("%d entries were removed by force, want 1", n)
		}
		if n := counts[TwoHeldPrefix+ByRevocation.String()]; n != want {
			t.Errorf("held until %d ms: two held %d times, want %d", last, n, want)
		}
	}
}

func TestHoldsAreInTheOrderOfTheirEntries(t *testing.T) {
	s := turns()
	s.Holds[0].First, s.Holds[0].Last = s.at(3500).now, s.at(3600).now
	all := s.Judge().Violations
	if len(all) == 0 || all[len(all)-1] != "b1 held revision 3 before a1 held revision 2" {
		t.Errorf("violations: %q", all)
	}
}

func TestReadersExcludeNoReaders(t *testing.T) {
	s := newStory()
	a := s.at(1000).queue("a1", reads)
	ha := s.grant(a)
	b := s.at(1500).queue("b1", reads)
	hb := s.grant(b)
	s.at(2000).release(a, ha)
	s.at(2000).release(b, hb)
	s.check(t, "")
	if n := s.Judge().Counts[Together]; n != 1 {
		t.Errorf("%d were granted beside others", n)
	}
}
