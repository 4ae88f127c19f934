package queuemodel

// The scenarios. Attempts are for lock 0 unless they say otherwise; attempt i
// is of session i where the scenario is about several sessions.

func with(s scenario, changes ...func(*scenario)) scenario {
	s.attempts = append([]plan(nil), s.attempts...)
	for _, change := range changes {
		change(&s)
	}
	return s
}

func unknown(s *scenario)   { s.unknown, s.name = true, s.name+", unknown revision" }
func compacted(s *scenario) { s.compacted, s.name = true, s.name+", compacted" }
func looksBack(s *scenario) { s.looksBack, s.name = true, s.name+", looks back" }
func besides(s *scenario) {
	s.lateGate, s.beganBefore, s.beside, s.name = true, true, true, s.name+", copies beside, a gate read late"
}
func latePut(s *scenario) { s.latePuts, s.name = 1, s.name+", late put of a key" }

func closes(sessions ...int8) func(*scenario) {
	return func(s *scenario) { s.closing, s.name = sessions, s.name+", with a Close" }
}

func breaking(r rule, expect string) func(*scenario) {
	return func(s *scenario) { s.broken, s.expect, s.name = r, expect, string(r)+", in: "+s.name }
}

var (
	three = scenario{
		name: "three in line, two revoked, all may give up", sessions: 3,
		attempts: []plan{{session: 0, givesUp: true}, {session: 1, givesUp: true}, {session: 2, givesUp: true}},
		revokes:  2, revokable: []int8{0, 1, 2},
	}
	four = scenario{
		name: "four in line, two revoked, two may give up", sessions: 4,
		attempts: []plan{{session: 0}, {session: 1, givesUp: true}, {session: 2, givesUp: true}, {session: 3}},
		revokes:  2, revokable: []int8{0, 1, 2},
	}
	closing = scenario{
		name: "three in line, one revoked, two close", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1}, {session: 2}},
		revokes:  1, revokable: []int8{0}, closing: []int8{0, 1},
	}
	allClose = scenario{
		name: "three in line, two revoked, all may close, one may give up", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, givesUp: true}, {session: 2}},
		revokes:  2, revokable: []int8{0, 1}, closing: []int8{0, 1, 2},
	}
	closeHoldingAndWaiting = scenario{
		name: "a session closes that holds one lock and waits for another", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1}, {session: 1, lock: 1}, {session: 2}},
		revokes:  1, revokable: []int8{0}, closing: []int8{1},
	}
	closeLine = scenario{
		name: "a session with a line closes or gives its lease up, one revoked", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, line: true, givesUp: true}, {session: 2}},
		revokes:  1, revokable: []int8{0}, closing: []int8{1}, giveUpLeases: 1,
	}
	closeUnanswered = scenario{
		name: "a session closes whose enqueue may go unanswered", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, slow: true, givesUp: true}, {session: 2}},
		revokes:  1, revokable: []int8{0}, closing: []int8{1}, lossy: true,
	}
	handingOn = scenario{
		name: "three in line, the second with another goroutine behind it, one revoked", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, line: true, givesUp: true}, {session: 2}},
		revokes:  1, revokable: []int8{0},
	}
	handingOnTwice = scenario{
		name: "three with a line each, two revoked", sessions: 3,
		attempts: []plan{{session: 0, line: true}, {session: 1, line: true}, {session: 2, givesUp: true}},
		revokes:  2, revokable: []int8{0, 1},
	}
	handingOnUnanswered = scenario{
		name: "a hand-off that may go unanswered, one revoked", sessions: 2,
		attempts: []plan{{session: 0, line: true, slow: true, givesUp: true}, {session: 1, givesUp: true}},
		revokes:  1, revokable: []int8{0, 1}, copies: 2, lossy: true,
	}
	regranted = scenario{
		name: "two in line, both revoked, both get new leases", sessions: 2,
		attempts: []plan{{session: 0}, {session: 1}},
		revokes:  2, revokable: []int8{0, 1}, regrants: []int8{0, 1},
	}
	waiterRegranted = scenario{
		name: "two in line, both revoked, the second gets a new lease", sessions: 2,
		attempts: []plan{{session: 0}, {session: 1}},
		revokes:  2, revokable: []int8{0, 1}, regrants: []int8{1},
	}
	threeRegranted = scenario{
		name: "three in line, two revoked, the second gets a new lease", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1}, {session: 2}},
		revokes:  2, revokable: []int8{0, 1}, regrants: []int8{1},
	}
	lineRegranted = scenario{
		name: "three in line, two revoked, the second gets a new lease and has a line", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, line: true, givesUp: true}, {session: 2, givesUp: true}},
		revokes:  2, revokable: []int8{0, 1}, regrants: []int8{1},
	}
	allRegranted = scenario{
		name: "three in line, three revoked, the second gets a new lease and may give up", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, givesUp: true}, {session: 2}},
		revokes:  3, revokable: []int8{0, 1, 2}, regrants: []int8{1},
	}
	givenUpForGood = scenario{
		name: "three in line, one revoked, two leases given up by their sessions' clocks", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1}, {session: 2, givesUp: true}},
		revokes:  1, revokable: []int8{0, 1}, giveUpLeases: 2,
	}
	givenUp = scenario{
		name: "three in line, one revoked, one lease given up by its session's clock", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, givesUp: true}, {session: 2}},
		revokes:  1, revokable: []int8{0}, giveUpLeases: 1, regrants: []int8{1},
	}
	keyDeleted = scenario{
		name: "three in line, a session key deleted by hand, one revoked", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, givesUp: true}, {session: 2}},
		revokes:  1, revokable: []int8{0}, deleteKeys: 1,
	}
	keyOfWaiterDeleted = scenario{
		name: "three in line, a session key deleted by hand, the second revoked", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1}, {session: 2}},
		revokes:  1, revokable: []int8{1}, deleteKeys: 1, unknown: true,
	}
	keyDeletedUnanswered = scenario{
		name: "unanswered enqueues, a session key deleted by hand, one revoked", sessions: 2,
		attempts: []plan{{session: 0, slow: true, givesUp: true}, {session: 1}},
		revokes:  1, revokable: []int8{0}, deleteKeys: 1, copies: 2, lossy: true,
	}
	keyDeletedRegranted = scenario{
		name: "two in line, a session key deleted by hand, one revoked, new leases", sessions: 2,
		attempts: []plan{{session: 0}, {session: 1}},
		revokes:  1, revokable: []int8{0, 1}, deleteKeys: 1, regrants: []int8{0, 1},
	}
	keyDeletedSwept = scenario{
		name: "one session sweeps while its key is deleted by hand", sessions: 1,
		attempts:   []plan{{slow: true, givesUp: true}, {}},
		deleteKeys: 1, copies: 2, lossy: true,
	}
	swept = scenario{
		name: "unanswered enqueues of one session for two locks, another session behind", sessions: 2,
		attempts: []plan{{slow: true, givesUp: true}, {lock: 1, slow: true, givesUp: true}, {session: 1}},
		copies:   2, lossy: true,
	}
	sweptAlone = scenario{
		name: "unanswered enqueues of one session", sessions: 1,
		attempts: []plan{{slow: true, givesUp: true}, {lock: 1, slow: true}},
		copies:   2, lossy: true,
	}
	sweptTwoLost = scenario{
		name: "unanswered enqueues of a waiter, both revoked, the waiter gets a new lease", sessions: 2,
		attempts: []plan{{session: 0}, {session: 1, slow: true, givesUp: true}},
		revokes:  2, revokable: []int8{0, 1}, regrants: []int8{1}, copies: 2, lossy: true,
	}
	sweptBehindRevoked = scenario{
		name: "unanswered enqueues between a holder that is revoked and a waiter", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, slow: true, givesUp: true}, {session: 2}},
		revokes:  1, revokable: []int8{0}, copies: 2, lossy: true,
	}
	alwaysSwept = scenario{
		name: "slow enqueues of one session, always a suspect", sessions: 1,
		attempts: []plan{{slow: true}, {lock: 1, slow: true}},
		copies:   2, alwaysSuspects: true,
	}
	clean = scenario{
		name: "no fault: three in line, all may give up, two close", sessions: 3,
		attempts: []plan{{session: 0, givesUp: true}, {session: 1, givesUp: true}, {session: 2, givesUp: true}},
		closing:  []int8{0, 1}, clean: true,
	}
	cleanLine = scenario{
		name: "no fault: lines", sessions: 3,
		attempts: []plan{{session: 0, line: true}, {session: 1, line: true, givesUp: true}, {session: 2, givesUp: true}},
		clean:    true,
	}
	cleanFour = scenario{
		name: "no fault: four in line, three may give up, no close", sessions: 4,
		attempts: []plan{
			{session: 0, givesUp: true}, {session: 1, givesUp: true}, {session: 2, givesUp: true}, {session: 3},
		},
		clean: true,
	}
	cleanUnanswered = scenario{
		name: "no fault but silence: unanswered enqueues are swept without delaying those behind", sessions: 2,
		attempts: []plan{{slow: true, givesUp: true}, {session: 1}},
		copies:   2, lossy: true, clean: true,
	}
)
