package queuemodel

// The scenarios of sets: several names, trees, and locks that can be downgraded.

func write(lock int8) member { return member{lock, false} }
func read(lock int8) member  { return member{lock, true} }

func lastOfEqual(s *scenario) {
	s.lastOfEqual, s.name = true, s.name+", of two entries of a set the other is the nearest"
}

var (
	lockAll = scenario{
		name: "A and B, B and A, A, one revoked, all may give up", sessions: 3,
		attempts: []plan{
			{session: 0, set: []member{write(0), write(1)}, givesUp: true},
			{session: 1, set: []member{write(1), write(0)}, givesUp: true},
			{session: 2, givesUp: true},
		},
		revokes: 1, revokable: []int8{0, 1, 2},
	}
	lockAllTwoLost = scenario{
		name: "A and B, B and A, A, two revoked, one may give up", sessions: 3,
		attempts: []plan{
			{session: 0, set: []member{write(0), write(1)}},
			{session: 1, set: []member{write(1), write(0)}, givesUp: true},
			{session: 2},
		},
		revokes: 2, revokable: []int8{0, 1},
	}
	lockAllFour = scenario{
		name: "A and B, B and A, A, shared B, one revoked, one may give up", sessions: 4,
		attempts: []plan{
			{session: 0, set: []member{write(0), write(1)}},
			{session: 1, set: []member{write(1), write(0)}, givesUp: true},
			{session: 2},
			{session: 3, lock: 1, shared: true},
		},
		revokes: 1, revokable: []int8{0},
	}
	lockAllBetween = scenario{
		name: "A, B, A and B, and B, one revoked, the set may give up", sessions: 4,
		attempts: []plan{
			{session: 0}, {session: 1, lock: 1},
			{session: 2, set: []member{write(0), write(1)}, givesUp: true},
			{session: 3, lock: 1},
		},
		revokes: 1, revokable: []int8{0, 1},
	}
	lockAllLater = scenario{
		name: "B twice, A and B, one revoked, all may give up", sessions: 3,
		attempts: []plan{
			{session: 0, lock: 1, givesUp: true}, {session: 1, lock: 1, givesUp: true},
			{session: 2, set: []member{write(0), write(1)}, givesUp: true},
		},
		revokes: 1, revokable: []int8{0, 1},
	}
	lockAllLineRegranted = scenario{
		name: "a line for A, A and B of the same session, B, one revoked, it gets a new lease or closes", sessions: 2,
		attempts: []plan{
			{session: 0, line: true}, {session: 0, set: []member{write(0), write(1)}},
			{session: 1, lock: 1},
		},
		revokes: 1, revokable: []int8{0, 1}, regrants: []int8{0}, closing: []int8{0},
	}
	treeRegranted = scenario{
		name: "a tree: A, A/B, B, one revoked, it gets a new lease or closes", sessions: 3,
		attempts: []plan{
			{session: 0}, {session: 1, set: []member{read(0), write(1)}}, {session: 2, lock: 1},
		},
		revokes: 1, revokable: []int8{0, 1}, regrants: []int8{0, 1}, closing: []int8{1},
	}
	lockAllByHand = scenario{
		name: "A, A and B, B and A, an entry is deleted by hand", sessions: 3,
		attempts: []plan{
			{session: 0},
			{session: 1, set: []member{write(0), write(1)}, again: true},
			{session: 2, set: []member{write(1), write(0)}, again: true},
		},
		deletes: 1,
	}
	lockAllByHandRevoked = scenario{
		name: "A, A and B, B, an entry is deleted by hand, one revoked", sessions: 3,
		attempts: []plan{
			{session: 0},
			{session: 1, set: []member{write(0), write(1)}, again: true, givesUp: true},
			{session: 2, lock: 1},
		},
		deletes: 1, revokes: 1, revokable: []int8{0},
	}
	lockAllRemoved = scenario{
		name: "A, B and A, B, an administrator removes an entry, one revoked", sessions: 3,
		attempts: []plan{
			{session: 0},
			{session: 1, set: []member{write(1), write(0)}, again: true},
			{session: 2, lock: 1},
		},
		removals: 1, revokes: 1, revokable: []int8{0},
	}
	lockAllRemovedGivesUp = scenario{
		name: "A, B and A, B, an administrator removes an entry, all may give up", sessions: 3,
		attempts: []plan{
			{session: 0, givesUp: true},
			{session: 1, set: []member{write(1), write(0)}, givesUp: true},
			{session: 2, lock: 1, givesUp: true},
		},
		removals: 1, revokes: 1, revokable: []int8{0},
	}
	lockAllUnanswered = scenario{
		name: "unanswered enqueues of A and B, B, one revoked", sessions: 2,
		attempts: []plan{
			{session: 0, set: []member{write(0), write(1)}, slow: true, givesUp: true},
			{session: 1, lock: 1, givesUp: true},
		},
		copies: 2, lossy: true, revokes: 1, revokable: []int8{0, 1},
	}
	lockAllUnansweredByHand = scenario{
		name: "unanswered enqueues of A and B, B, an entry is deleted by hand", sessions: 2,
		attempts: []plan{
			{session: 0, set: []member{write(0), write(1)}, slow: true, givesUp: true},
			{session: 1, lock: 1},
		},
		copies: 2, lossy: true, deletes: 1,
	}
	lockAllUnansweredAgain = scenario{
		name: "unanswered enqueues of A and B, B, an entry is deleted by hand, and the set queues anew", sessions: 2,
		attempts: []plan{
			{session: 0, set: []member{write(0), write(1)}, slow: true, again: true},
			{session: 1, lock: 1},
		},
		copies: 2, lossy: true, deletes: 1,
	}
	lockAllSwept = scenario{
		name: "unanswered enqueues of A and B between a holder that is revoked and a waiter", sessions: 3,
		attempts: []plan{
			{session: 0, lock: 1},
			{session: 1, set: []member{write(0), write(1)}, slow: true, givesUp: true},
			{session: 2, lock: 1},
		},
		copies: 2, lossy: true, revokes: 1, revokable: []int8{0},
	}
	lockAllCloses = scenario{
		name: "A, A and B, B, one revoked, all may close", sessions: 3,
		attempts: []plan{
			{session: 0}, {session: 1, set: []member{write(0), write(1)}}, {session: 2, lock: 1},
		},
		revokes: 1, revokable: []int8{0}, closing: []int8{0, 1, 2},
	}
	lockAllRegranted = scenario{
		name: "A, A and B, B, both first revoked, the set gets a new lease", sessions: 3,
		attempts: []plan{
			{session: 0}, {session: 1, set: []member{write(0), write(1)}, givesUp: true}, {session: 2, lock: 1},
		},
		revokes: 2, revokable: []int8{0, 1}, regrants: []int8{1},
	}
	lockAllLine = scenario{
		name: "a line for A, A and B of the same session, B and A, one revoked", sessions: 2,
		attempts: []plan{
			{session: 0, line: true}, {session: 0, set: []member{write(0), write(1)}},
			{session: 1, set: []member{write(1), write(0)}, givesUp: true},
		},
		revokes: 1, revokable: []int8{0, 1},
	}
	tree = scenario{
		name: "a tree: A, A/B twice, one revoked, all may give up", sessions: 3,
		attempts: []plan{
			{session: 0, givesUp: true},
			{session: 1, set: []member{read(0), write(1)}, givesUp: true},
			{session: 2, set: []member{read(0), write(1)}, givesUp: true},
		},
		revokes: 1, revokable: []int8{0, 1, 2},
	}
	treeTwoLost = scenario{
		name: "a tree: A, A/B twice, two revoked", sessions: 3,
		attempts: []plan{
			{session: 0},
			{session: 1, set: []member{read(0), write(1)}, givesUp: true},
			{session: 2, set: []member{read(0), write(1)}},
		},
		revokes: 2, revokable: []int8{0, 1},
	}
	treeDeep = scenario{
		name: "a tree: A, A/B/C, A/B, one revoked", sessions: 3,
		attempts: []plan{
			{session: 0},
			{session: 1, set: []member{read(0), read(1), write(2)}, givesUp: true},
			{session: 2, set: []member{read(0), write(1)}},
		},
		revokes: 1, revokable: []int8{0, 1},
	}
	treeUnanswered = scenario{
		name: "unanswered enqueues of A/B, A, one revoked", sessions: 2,
		attempts: []plan{
			{session: 0, givesUp: true},
			{session: 1, set: []member{read(0), write(1)}, slow: true, givesUp: true},
		},
		copies: 2, lossy: true, revokes: 1, revokable: []int8{0},
	}
	downgrade = scenario{
		name: "a writer that goes on as a reader, a writer, a reader, one revoked", sessions: 3,
		attempts: []plan{
			{session: 0, set: []member{write(0), read(0)}, downgrades: true},
			{session: 1, givesUp: true},
			{session: 2, shared: true, givesUp: true},
		},
		revokes: 1, revokable: []int8{0, 1},
	}
	downgradeFour = scenario{
		name: "a writer that goes on as a reader, a writer, two readers, one revoked", sessions: 4,
		attempts: []plan{
			{session: 0, set: []member{write(0), read(0)}, downgrades: true},
			{session: 1},
			{session: 2, shared: true},
			{session: 3, shared: true, givesUp: true},
		},
		revokes: 1, revokable: []int8{0},
	}
	downgradeWaits = scenario{
		name: "a reader, a writer that goes on as a reader, a writer, two revoked", sessions: 3,
		attempts: []plan{
			{session: 0, shared: true},
			{session: 1, set: []member{write(0), read(0)}, downgrades: true, givesUp: true},
			{session: 2},
		},
		revokes: 2, revokable: []int8{0, 1},
	}
	downgradeRemoved = scenario{
		name: "a writer that goes on as a reader, a writer, an administrator removes a holder", sessions: 2,
		attempts: []plan{
			{session: 0, set: []member{write(0), read(0)}, downgrades: true},
			{session: 1, givesUp: true},
		},
		removals: 1, revokes: 1, revokable: []int8{0},
	}
	cleanSets = scenario{
		name: "no fault: A and B, B and A, A and shared B, all may give up", sessions: 3,
		attempts: []plan{
			{session: 0, set: []member{write(0), write(1)}, givesUp: true},
			{session: 1, set: []member{write(1), write(0)}, givesUp: true},
			{session: 2, set: []member{write(0), read(1)}, givesUp: true},
		},
		clean: true,
	}
	crossing = scenario{
		name: "A and B, B and A", sessions: 2,
		attempts: []plan{{session: 0, set: []member{write(0), write(1)}}, {session: 1, set: []member{write(1), write(0)}}},
	}
	ofOneSession = scenario{
		name: "a writer and a reader of one session", sessions: 1,
		attempts: []plan{{}, {shared: true}},
	}
)
