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
		"a newcomer":               {cause: ByRevocation, newcomer: true, last: granted + 1},
		"a deletion by hand":       {cause: ByDeletion, last: granted + 1},
		"the first is cut off":     {cause: ByRevocation, last: granted + 1, fault: [2]int{gone + 500, gone + 600}},
		"all are cut off": {cause: ByRevocation, last: granted + 1, fault: [2]int{gone + 500, gone + 600},
			everybody: true},
		"it was cut off before": {cause: ByRevocation, last: granted + 1, fault: [2]int{gone - 100, gone - 1},
			want: "held together"},
		"shortly before it was seen": {cause: ByRevocation, last: granted + 1, fault: [2]int{gone - 100, gone - 1},
			late: time.Second},
		"its process did not run": {cause: ByRevocation, last: granted + 1, gap: 501 * time.Millisecond},
		"its polls were slow":     {cause: ByRevocation, last: granted + 1, slow: true},
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

// A caller that waited by another entry is no newcomer.
func TestWaiterThatQueuedAgainHasWaited(t *testing.T) {
	for name, handedOff := range map[string]bool{"queued again": false, "handed off": true} {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			a := s.at(1000).queue("a1", writes)
			ha := s.grant(a)
			first := s.at(2000).queue("b1", writes)
			s.at(5000).delete(a, ByRevocation)
			s.at(5100).remove(first.keys[0], ByRequest)
			if !handedOff {
				s.rev++
			}
			who := map[bool]string{false: "b1", true: "b2"}[handedOff]
			key := s.entry(who, writes, 1)
			s.putMore(key, value(who), leaseOf(who))
			b := attempt{who: who, rev: s.rev, parts: []Part{writes}, keys: []string{key}}
			s.at(5201).until(ha)
			hb := s.at(5200).grant(b)
			s.at(6000).release(b, hb)
			s.check(t, "held together for 1ms")
		})
	}
}

func TestHoldsAreInTheOrderOfTheirEntries(t *testing.T) {
	s := turns()
	s.Holds[0].First, s.Holds[0].Last = s.at(3500).now, s.at(3600).now
	all := s.Judge().Violations
	if len(all) == 0 || all[len(all)-1] != "b1 held revision 3 before a1 held revision 2" {
		t.Errorf("violations: %q", all)
	}
	t.Run("perhaps the reply came late", func(t *testing.T) {
		s := newStory()
		a := s.at(1000).queue("a1", writes)
		b := s.at(1500).queue("b1", writes)
		s.at(2000).delete(a, ByDeletion)
		hb := s.at(2100).grant(b)
		s.at(2200).release(b, hb)
		ha := s.at(2300).grant(a)
		ha.AcquiredAt = a.rev
		s.at(2400).until(ha)
		s.check(t, "")
	})
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

// Where there are only mutexes, those that queued later waited behind one that waited.
func TestMutexesWaitBehindEachOther(t *testing.T) {
	for only, want := range map[bool]string{true: "held together", false: ""} {
		s := newStory()
		s.OnlyMutexes = only
		a := s.at(1000).queue("a1", writes)
		ha := s.grant(a)
		b := s.at(2000).queue("b1", writes)
		s.at(5000).delete(a, ByRevocation)
		c := s.at(5100).queue("c1", writes)
		hb := s.at(5201).grant(b)
		hb.First, hb.Last = 0, 0 // of b and a nothing is known
		s.at(5300).release(b, hb)
		hb.First, hb.Last = 0, 0
		s.at(5401).until(ha)
		hc := s.at(5400).grant(c)
		s.at(6000).release(c, hc)
		s.check(t, want)
	}
}

// No other entry stands in the queue of a shard while it is owned. Who was a member when the lease was revoked waits.
func TestNextOwnerOfAShardWaitsIfItKnewTheLastOne(t *testing.T) {
	const gone = 9000
	for name, c := range map[string]struct {
		joined int
		fault  int // of the next owner, for 100 ms
		want   string
	}{
		"a member":                   {joined: 1000, want: "held together for 1ms"},
		"it has just joined":         {joined: gone - 2000},
		"it has joined since":        {joined: gone + 50},
		"it was cut off just before": {joined: 1000, fault: gone - 2000},
		"it was cut off long before": {joined: 1000, fault: 2000, want: "held together for 1ms"},
		"it is cut off since":        {joined: 1000, fault: gone + 10, want: "held together for 1ms"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			part := ShardPart("x", 7)
			s.Faults = []Fault{{Process: "b", From: s.at(c.fault).now, To: s.at(c.fault + 100).now}}
			join := func() { s.at(c.joined).put(MembersOf("shard/x")+"2", "", leaseOf("b")) }
			if c.joined < gone {
				join()
			}
			a := s.at(c.joined+500).queue("a1", part)
			ha := s.grant(a)
			s.at(gone).delete(a, ByRevocation)
			if c.joined > gone {
				join()
			}
			b := s.at(gone+100).queue("b1", part)
			s.at(gone + 201).until(ha)
			hb := s.at(gone + 200).grant(b)
			s.at(gone+900).release(b, hb)
			s.check(t, c.want)
		})
	}
}
