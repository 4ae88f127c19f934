package queuemodel

// The scenarios of MinHold.

var (
	minHold = scenario{
		name: "three in line with MinHold, one revoked, all may give up", sessions: 3,
		attempts: []plan{
			{session: 0, minHold: true, givesUp: true}, {session: 1, minHold: true, givesUp: true},
			{session: 2, givesUp: true},
		},
		revokes: 1, revokable: []int8{0, 1},
	}
	minHoldClosing = scenario{
		name: "two in line with MinHold, the first revoked or closed", sessions: 3,
		attempts: []plan{{session: 0, minHold: true}, {session: 1, minHold: true}, {session: 2}},
		revokes:  1, revokable: []int8{0}, closing: []int8{0},
	}
	minHoldGivenUp = scenario{
		name: "two in line with MinHold, both may close or give their leases up", sessions: 3,
		attempts: []plan{{session: 0, minHold: true}, {session: 1, minHold: true}, {session: 2}},
		revokes:  1, revokable: []int8{0}, closing: []int8{0, 1}, giveUpLeases: 1, regrants: []int8{0},
	}
	minHoldLine = scenario{
		name: "two in line with MinHold, the first with another goroutine behind it, one revoked", sessions: 2,
		attempts: []plan{{session: 0, minHold: true, line: true}, {session: 1, minHold: true}},
		revokes:  1, revokable: []int8{0, 1}, closing: []int8{0},
	}
	minHoldUnanswered = scenario{
		name: "unanswered enqueues with MinHold, one revoked", sessions: 2,
		attempts: []plan{{session: 0, minHold: true, slow: true, givesUp: true}, {session: 1}},
		revokes:  1, revokable: []int8{0}, copies: 2, lossy: true,
	}
	readersMinHold = scenario{
		name: "a writer with MinHold and two readers behind it, two revoked", sessions: 3,
		attempts: []plan{{session: 0, minHold: true}, {session: 1, shared: true, givesUp: true}, {session: 2, shared: true}},
		revokes:  2, revokable: []int8{0, 1},
	}
	cleanMinHold = scenario{
		name: "no fault: MinHold, with a line", sessions: 3,
		attempts: []plan{{session: 0, minHold: true, line: true}, {session: 1, minHold: true, givesUp: true}, {session: 2}},
		clean:    true,
	}
)
