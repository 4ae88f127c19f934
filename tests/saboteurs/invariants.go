package main

// invariant is what must never break.
type invariant struct {
	name   string
	guards []string // the functions that keep it, by file
}

// invariants are what a promise of README.md rests on. Each has a saboteur at least, which takes out one of its rules.
var invariants = []invariant{
	{"1 Told before it expires", []string{
		"internal/lease/renewal.go Origin.trusted, Lease.heardReply, Lease.judgeLocked",
		"internal/lease/lease.go Lease.Check",
		"session/proof.go keeper.renewAndProve",
		"session/keeper.go keeper.watchdog",
		"session/watches.go watches.hear",
		"session/key.go sessionKey.restore",
		"session/revoke.go granter.revokeLost",
	}},
	{"forced removal within 6 s", []string{
		"internal/hold/roster.go roster.dueOf, roster.noteErrand",
		"internal/hold/poll.go poller.poll",
	}},
	{"a session at rest costs etcd little", []string{
		"internal/hold/roster.go roster.dueOf",
		"internal/hold/poll.go poller.errand",
		"session/key.go sessionKey.readWith",
		"session/watches.go watches.keep, watches.planLocked",
	}},
	{"2 Lost is forever", []string{
		"internal/lease/lease.go Lease.loseLocked",
		"internal/hold/hold.go life.stop",
	}},
	{"3 One attempt, one entry", []string{
		"internal/queue/put.go attempt.put, attempt.findPut, attempt.whyRefused",
		"internal/queue/permit.go permit.absent",
		"internal/queue/remove.go entry.finish",
		"internal/leftovers/sweeper.go Keys.Register, Keys.Recycle, Sweeper.removeTogether",
	}},
	{"4 Nothing left behind", []string{
		"internal/queue/put.go attempt.wasNotPut, attempt.whyRefused",
		"internal/queue/remove.go entry.tryRemove",
		"internal/queue/remove.go entry.HandOff",
		"internal/leftovers/sweeper.go Sweeper.sweep",
		"internal/requests/txns.go Committer.Commit",
		"internal/hold/downgrade.go Hold.endLost",
	}},
	{"5 Release only your own", []string{"internal/queue/entry.go entry.Holding"}},
	{"6 Verified after the wait", []string{
		"internal/queue/acquire.go attempt.mayHold, attempt.awaitFront",
		"internal/queue/wait.go entry.look, attempt.standIn",
	}},
	{"7 Strict FIFO", []string{
		"internal/queue/wait.go scope.nearest",
		"internal/queue/line.go lines.join, caller.next",
		"internal/queue/semaphore.go standingIn, fitting",
	}},
	{"8 No herd, constant RPCs", []string{
		"internal/watching/follow.go Follower.watch",
		"internal/queue/wait.go scope.nearest, entry.look",
	}},
	{"9 Tokens strictly increase", []string{"internal/layout/value.go Token", "token.go NewToken"}},
	{"10 Two goroutines are two contenders", []string{
		"internal/queue/line.go lines.join",
		"internal/hold/hold.go life.stop",
	}},
	{"11 Callbacks never hurt renewal", []string{
		"session/events.go events.publish",
		"session/session.go newSession",
		"internal/callback/calls.go Calls.Add, Call.make",
		"internal/hold/release.go removal.onSession",
	}},
	{"12 Every goroutine has an owner", []string{
		"session/close.go work.Go, work.Joining",
		"session/close.go Session.finish",
	}},
	{"13 A dead context releases too", []string{
		"session/close.go work.Detached",
		"internal/hold/release.go Hold.Release",
		"session/close.go Session.Close",
	}},
	{"14 No RPC, no callback under a mutex", []string{"DESIGN.md Mutexes"}},
	{"15 Work is joined before release", []string{"locker/mutex.go do", "election/call.go Term.call"}},
	{"work that outlives its hold is told before the next one holds", []string{
		"internal/hold/work.go Work.watch, Work.late, Work.grace, Work.Overrun",
	}},
	{"functions of one election never overlap on a session", []string{
		"election/turn.go turn.await, turn.done",
		"election/run.go Election.elect",
	}},
	{"etcd's own locks are contenders", []string{"internal/queue/queue.go At"}},
	{"16 A revoked holder is told before a waiter holds", []string{
		"internal/queue/put.go attempt.putting",
		"internal/queue/wait.go entry.look, entry.noteExamined, readAhead.note",
		"internal/queue/delay.go scope.dead",
		"internal/queue/delay.go delays.noteDead, delays.noteExamined, delay.end",
		"internal/queue/delay.go attempt.passClaims, attempt.clear, attempt.clearing",
		"internal/queue/remove.go entry.tryRemove",
		"session/watches.go watches.hear, watches.claim, watches.set, watches.publishLocked",
		"internal/hold/roster.go roster.due",
		"internal/lease/hearing.go PollInterval",
	}},
	{"claims outlive their session, and not for long", []string{
		"session/grant.go Options.claimsTTL, granter.obtain",
		"session/keeper.go keeper.keepClaims, keeper.renewClaims",
		"session/revoke.go granter.revokeLost, granter.revokePair",
	}},
	{"no leader is named before it leads", []string{
		"internal/front/front.go Monitor.ask, Monitor.first",
		"internal/front/follow.go liveFront.apply",
		"admin/show.go Queue.holding, listing.judgeClaims",
		"admin/events_tell.go watcher.claimChanged",
	}},
	{"a loss is told apart from a release", []string{
		"admin/events_tell.go watcher.ask, watcher.change",
		"internal/explain/explain.go replay.judgeBatch",
	}},
	{"a slow etcd is not kept slow", []string{
		"internal/requests/pace.go Sender.pauses, Kind.isOwn, budget.borrow, budget.pay",
		"internal/hold/poll.go poller.poll",
		"internal/hold/roster.go roster.due",
		"session/revoke.go granter.revokeLost",
	}},
	{"readers hold together, writers alone", []string{
		"internal/queue/wait.go scope.conflicting",
		"internal/layout/claim.go Keyspace.WritersClaims",
		"internal/queue/delay.go scope.dead",
	}},
	{"a set holds and ends as a whole", []string{
		"internal/queue/put.go attempt.put, attempt.findPut",
		"internal/queue/wait.go attempt.standIn",
		"internal/hold/release.go life.endAndRelease",
		"internal/queue/remove.go RemoveNow",
		"internal/hold/downgrade.go Hold.Downgrade, Hold.goOn",
	}},
	{"no hold by an entry that is about to go", []string{
		"internal/queue/wait.go attempt.standIn",
		"internal/queue/delay.go attempt.clearing",
		"internal/queue/acquire.go attempt.mayHold",
		"internal/lease/hearing.go LookLasts",
	}},
	{"17 A removed holder is told before a waiter holds", []string{
		"internal/hold/loss.go Hold.noteEntry, life.removeKept",
		"admin/request.go request.find, request.bell, request.write",
		"internal/lease/hearing.go Lease.Heard",
		"admin/remove.go request.move",
	}},
	{"none holds by what is detached, and one by its ticket", []string{
		"internal/hold/detach.go Hold.Detach, detaching.try, detaching.giveUp, detaching.revoke",
		"internal/queue/attach.go Attach, attaching.try, attaching.refused",
		"internal/queue/wait.go entry.examine, entry.noteExamined, groupOf",
		"internal/leftovers/sweeper.go Suspect.owns",
		"admin/request.go request.endTicket",
	}},
	{"a name stays taken for MinHold", []string{
		"internal/hold/minhold.go removal.stayTaken, move.try, moveTaken",
		"internal/queue/entry.go Taken",
		"internal/leftovers/sweeper.go Sweeper.removeStanding",
	}},
	{"a stuck job does not hold for ever", []string{
		"internal/hold/hold.go life.limitTime",
	}},
	{"no more permits than the limit", []string{
		"internal/queue/permit.go permit.wasPut, permit.found, permit.ask, permit.hear, permit.admit",
		"internal/queue/semaphore.go standing.forTurn, standing.forPermit",
	}},
	{"the front of a semaphore is told, and admits all that fit", []string{
		"internal/queue/permit.go permit.hear",
		"internal/queue/permit.go permit.admit",
	}},
	{"a dead claim of a permit is waited for, and no other", []string{
		"internal/queue/semaphore.go standingIn, standing.inTheWay",
		"internal/queue/permit.go permit.lookAtAll",
	}},
	{name: "all of the queue, under faults drawn from a seed"},
	{"marks are raised and never forgotten", []string{
		"fencing/mark.go Claim.CheckMark",
		"fencing/memfence/store.go Store.Do",
		"fencing/etcdfence/commit.go Marks.Commit",
		"fencing/etcdfence/marks.go Marks.Reset",
	}},
	{"told what was done", []string{
		"internal/fence/verdict.go VerdictOf",
		"internal/fence/serve.go Serve",
		"fencing/httpfence/answer.go answer.failed",
	}},
	{"the fence", []string{"fencing/etcdfence/writer.go request.send"}},
	{"the fence in SQL", []string{
		"fencing/sqlfence/marks.go claimant.raise, claimant.checkFloor",
		"fencing/sqlfence/dialect.go Dialect.statements",
		"fencing/sqlfence/commit.go request.verifyTx, request.workFailed",
	}},
	{"functions of one shard never overlap", []string{
		"shard/run.go run.want, run.leave",
		"shard/worker.go worker.hold, worker.call",
	}},
	{"a revoked owner is told before the next one holds", []string{"shard/run.go run.want"}},
	{"all shards are owned, evenly", []string{
		"shard/assign.go assign, candidates", "shard/rooms.go rooms, divide", "shard/run.go run.assign, run.leave",
	}},
	{"shards go where operators say", []string{
		"shard/assign.go pin, candidates", "shard/steer.go run.keepDrained", "admin/steer.go steering.try, Client.endSteer",
	}},
	{"no functions run with two numbers of shards", []string{
		"admin/shards.go resizing.try, untold, resizing.put",
		"shard/run.go run.compareCount",
		"shard/worker.go worker.acquire",
		"shard/shards.go Shard.ClaimName",
	}},
	{"members that join together move a shard once", []string{"shard/settle.go settling.settled, settling.update"}},
	{"a restart within Rejoin moves no shard", []string{
		"member/reservation.go reservation.renew, reservation.shorten",
		"shard/run.go run.assign, run.leave",
	}},
	{"a command ends before its lease", []string{
		"cmd/holdfast/supervise.go supervisor.run",
		"cmd/holdfast/child_unix.go startChild, child.pause",
	}},
	{"all of it, with processes and SIGSTOP", []string{"examples/quickstart"}},
}
