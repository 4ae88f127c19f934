package queuemodel

// The scenarios of readers and writers.

var (
	readers = scenario{
		name: "two readers and a writer behind them, both revoked, all may give up", sessions: 3,
		attempts: []plan{
			{session: 0, shared: true, givesUp: true}, {session: 1, shared: true, givesUp: true}, {session: 2, givesUp: true},
		},
		revokes: 2, revokable: []int8{0, 1, 2},
	}
	writerLeavesReaders = scenario{
		name: "a writer that is revoked, a reader, a writer that gives up, a reader", sessions: 4,
		attempts: []plan{{session: 0}, {session: 1, shared: true}, {session: 2, givesUp: true}, {session: 3, shared: true}},
		revokes:  1, revokable: []int8{0},
	}
	readersBetween = scenario{
		name: "two writers and two readers, two revoked, one reader may give up", sessions: 4,
		attempts: []plan{{session: 0}, {session: 1, shared: true, givesUp: true}, {session: 2, shared: true}, {session: 3}},
		revokes:  2, revokable: []int8{0, 1, 2},
	}
	writersAmongReaders = scenario{
		name: "three readers and a writer that may give up, two revoked", sessions: 4,
		attempts: []plan{
			{session: 0, shared: true}, {session: 1, givesUp: true}, {session: 2, shared: true}, {session: 3, shared: true},
		},
		revokes: 2, revokable: []int8{0, 1},
	}
	readersClose = scenario{
		name: "two readers and a writer, one revoked, all may close", sessions: 3,
		attempts: []plan{{session: 0, shared: true}, {session: 1, shared: true}, {session: 2}},
		revokes:  1, revokable: []int8{0, 1}, closing: []int8{0, 1, 2},
	}
	readersOfOneSession = scenario{
		name: "a session with two readers and another with a writer, both revoked and granted again", sessions: 2,
		attempts: []plan{{session: 0, shared: true}, {session: 1}, {session: 0, shared: true, givesUp: true}},
		revokes:  2, revokable: []int8{0, 1}, regrants: []int8{0, 1},
	}
	writerLine = scenario{
		name: "two readers, and a writer with another goroutine behind it, one revoked", sessions: 3,
		attempts: []plan{{session: 0, shared: true}, {session: 1, shared: true}, {session: 2, line: true, givesUp: true}},
		revokes:  1, revokable: []int8{0},
	}
	writerLineGivesUp = scenario{
		name: "two readers, and a line of writers whose session gives its lease up, one revoked", sessions: 3,
		attempts: []plan{{session: 0, shared: true}, {session: 1, shared: true}, {session: 2, line: true, givesUp: true}},
		revokes:  1, revokable: []int8{0}, giveUpLeases: 1,
	}
	readersUnanswered = scenario{
		name: "unanswered enqueues of a writer behind two readers, one revoked", sessions: 3,
		attempts: []plan{{session: 0, shared: true}, {session: 1, shared: true}, {session: 2, slow: true, givesUp: true}},
		revokes:  1, revokable: []int8{0}, copies: 2, lossy: true,
	}
	readerUnanswered = scenario{
		name: "unanswered enqueues of a reader between a writer that is revoked and a writer", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, shared: true, slow: true, givesUp: true}, {session: 2}},
		revokes:  1, revokable: []int8{0}, copies: 2, lossy: true,
	}
	readerWaits = scenario{
		name: "a writer, two readers and a writer, one reader revoked", sessions: 4,
		attempts: []plan{
			{session: 0}, {session: 1, shared: true}, {session: 2, shared: true, givesUp: true}, {session: 3},
		},
		revokes: 1, revokable: []int8{1},
	}
	readersCloseClean = scenario{
		name: "no fault: a writer, two readers and a writer, the readers close", sessions: 4,
		attempts: []plan{
			{session: 0}, {session: 1, shared: true}, {session: 2, shared: true, givesUp: true}, {session: 3},
		},
		closing: []int8{1, 2}, clean: true,
	}
	readersClean = scenario{
		name: "no fault: readers and writers, all may give up", sessions: 3,
		attempts: []plan{
			{session: 0, shared: true, givesUp: true}, {session: 1, shared: true, givesUp: true}, {session: 2, givesUp: true},
			{session: 2, lock: 0, shared: true},
		},
		clean: true,
	}
)
