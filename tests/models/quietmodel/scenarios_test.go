package quietmodel

func with(s scenario, name string, changes ...func(*scenario)) scenario {
	for _, change := range changes {
		change(&s)
	}
	s.name += name
	return s
}

func breaking(r rule, expect string) func(*scenario) {
	return func(s *scenario) { s.broken, s.expect, s.name = r, expect, string(r)+", in: "+s.name }
}

func sick(n int8, of ...health) func(*scenario) {
	return func(s *scenario) { s.sick, s.sickness = n, of }
}

func outage(lasts int8) func(*scenario) {
	return func(s *scenario) { s.outage, s.toldIn = lasts, forever }
}

func failsFast(s *scenario) { s.failsFast = true }

func slots(n int8) func(*scenario) { return func(s *scenario) { s.slots = n } }

func needed(n int8) func(*scenario) { return func(s *scenario) { s.needed = n } }

func toldIn(t int8) func(*scenario) { return func(s *scenario) { s.toldIn = t } }

func removedIn(t int8) func(*scenario) { return func(s *scenario) { s.removedIn = t } }

func fails(how string) func(*scenario) { return func(s *scenario) { s.expect = how } }

// always polls at each tick, as the code does today, and as a session will that cannot watch enough members.
func always(s *scenario) {
	s.slots, s.needed, s.toldIn, s.name = 1, 9, first, s.name+", each tick polls"
}

const (
	first   = interval + replies // no more time passes until the first poll is answered
	slowly  = slowPoll + replies // or the next one
	bell    = 2 * replies        // or that of a bell that was heard while one was in flight
	forever = 30                 // where something else is looked for
)

var (
	three = scenario{
		name: "three members, two watches needed", members: 3, slots: 3, needed: 2, revokes: true, toldIn: slowly,
	}
	five = scenario{
		name: "five members, three watches needed", members: 5, slots: 3, needed: 3, revokes: true, toldIn: slowly,
	}
	oneSick = with(three, ", one sick", sick(1, lagging, hung, cutOff))
	kicked  = scenario{
		name: "three members, a kick", members: 3, slots: 3, needed: 2, kicks: ringing, toldIn: first,
	}
	kickedWatched = with(kicked, " while it is watched", toldIn(bell),
		func(s *scenario) { s.kicks, s.steady = ringingWatched, true })
	kickedInSilence = with(kicked, " without the bell", sick(1, lagging, hung, cutOff), toldIn(slowly),
		func(s *scenario) { s.kicks = silent })
	kickedLeader = with(kicked, ", of a leader that proclaims", func(s *scenario) { s.proclaims = true })
	removed      = with(kicked, ", the entry is removed", slots(2), sick(2, lagging), toldIn(forever),
		removedIn(slowly+1))
)

var small = []scenario{
	oneSick,
	with(oneSick, ", two slots", slots(2)),
	with(oneSick, "", always),
	with(three, ", two lag or are cut off", sick(2, lagging, cutOff), always),
	with(three, ", two lag or are cut off, all are watched", sick(2, lagging, cutOff), needed(3)),
	with(oneSick, ", no quorum for more than a lock delay", always, outage(lockDelay+1)),
	kicked, kickedWatched, kickedInSilence,
	with(kicked, "", always, func(s *scenario) { s.kicks = silent }),
	removed, kickedLeader,
}

var large = []scenario{
	with(oneSick, ", no quorum for more than a lock delay", outage(lockDelay+1)),
	with(oneSick, ", no quorum for more than a lock delay, polls fail", outage(lockDelay+1), failsFast),
	with(oneSick, ", no quorum for more than a lock delay, polls fail", always, outage(lockDelay+1), failsFast),
	with(five, ", two sick", sick(2, lagging, hung, cutOff)),
	with(five, ", two sick", sick(2, lagging, hung, cutOff), always),
	with(three, ", one sick, a kick", sick(1, lagging, hung, cutOff), func(s *scenario) { s.kicks = ringing }),
	with(three, ", one sick, a leader is kicked", sick(1, lagging, hung, cutOff), toldIn(slowly),
		func(s *scenario) { s.revokes, s.kicks, s.proclaims = false, ringing, true }),
}

// notPromised is what is not promised: see DESIGN.md.
var notPromised = []scenario{
	with(three, ", two lag", sick(2, lagging), fails("early")),
	with(three, ", two are cut off", sick(2, cutOff), fails("early")),
	with(oneSick, ", no quorum for a lock delay", outage(lockDelay), fails("early")),
	with(oneSick, ", no quorum for a lock delay", always, outage(lockDelay), fails("early")),
}

var broken = []scenario{
	with(oneSick, "", slots(1), needed(1), breaking(neverPolls, "early")),
	with(oneSick, "", breaking(neverPolls, "early")),
	with(oneSick, "", breaking(oneMemberForTwo, "early")),
	with(oneSick, "", breaking(movesUnnoticed, "early")),
	with(oneSick, "", breaking(countsBeforeRead, "early")),
	with(oneSick, "", breaking(countsAfterFailure, "early")),
	with(five, ", two lag", sick(2, lagging), slots(2), needed(2), breaking(fewerThanAMajority, "early")),
	with(kickedInSilence, "", breaking(neverPollsAgain, "late")),
	with(removed, "", breaking(newHoldIsNotPolled, "removed")),
	with(kicked, "", breaking(newHoldIsNotPolled, "late")),
	with(kickedWatched, "", breaking(bellInFlightIsLost, "late")),
	with(kicked, "", breaking(bellAtCreationIsLost, "late")),
	with(kickedWatched, "", breaking(bellWaits, "late")),
	with(kickedLeader, "", breaking(comparesEntryOnly, "kept")),
	with(kickedLeader, "", breaking(refusedIsResent, "kept")),
	with(kickedLeader, "", breaking(knownBeforeTold, "kept")),
	with(removed, "", removedIn(first+interval), breaking(removedTooSoon, "removed")),
	with(removed, "", breaking(oldLookSuffices, "removed")),
	with(oneSick, "", always, outage(lockDelay+1), breaking(holdsWithoutRead, "early")),
	with(oneSick, "", always, outage(lockDelay+1), breaking(lateReadSuffices, "early")),
	with(oneSick, "", outage(lockDelay+1), breaking(holdsWithoutRead, "early")),
	with(oneSick, "", always, breaking(ageSinceGrant, "early")),
}
