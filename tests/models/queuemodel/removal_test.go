package queuemodel

// The scenarios of forced removal.

var (
	removed = scenario{
		name: "three in line, an administrator removes two holders, one revoked", sessions: 3,
		attempts: []plan{{session: 0, givesUp: true}, {session: 1, givesUp: true}, {session: 2, givesUp: true}},
		revokes:  1, revokable: []int8{0, 1, 2}, removals: 2,
	}
	removedTwoLost = scenario{
		name: "three in line, an administrator removes a holder, two revoked, one closes", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, givesUp: true}, {session: 2}},
		revokes:  2, revokable: []int8{0, 1}, removals: 1, closing: []int8{0, 1},
	}
	removedLine = scenario{
		name: "a line, an administrator removes a holder, one revoked", sessions: 2,
		attempts: []plan{{session: 0, line: true}, {session: 1, givesUp: true}},
		revokes:  1, revokable: []int8{0, 1}, removals: 1, regrants: []int8{0},
	}
	removedLineTwice = scenario{
		name: "a line, an administrator removes two holders, one revoked, one given up", sessions: 2,
		attempts: []plan{{session: 0, line: true, givesUp: true}, {session: 1, givesUp: true}},
		revokes:  1, revokable: []int8{0, 1}, removals: 2, giveUpLeases: 1, regrants: []int8{0},
	}
	removedUnanswered = scenario{
		name: "unanswered enqueues, an administrator removes a holder", sessions: 2,
		attempts: []plan{{session: 0, slow: true, givesUp: true}, {session: 1, slow: true, givesUp: true}},
		removals: 1, copies: 2, lossy: true, revokes: 1, revokable: []int8{0},
	}
	readersRemoved = scenario{
		name: "two readers and a writer, an administrator removes a holder, two revoked", sessions: 3,
		attempts: []plan{{session: 0, shared: true}, {session: 1, shared: true, givesUp: true}, {session: 2, givesUp: true}},
		revokes:  2, revokable: []int8{0, 1}, removals: 1,
	}
	cleanRemoved = scenario{
		name: "no fault: an administrator removes two holders", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, givesUp: true}, {session: 2, givesUp: true}},
		removals: 2, clean: true,
	}
)
