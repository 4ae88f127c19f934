// Package quietmodel searches every interleaving of what tells a holder that its lease was revoked, or that an
// administrator wants its lock, for one in which a waiter holds before the holder knows. The queue's rule is that a
// waiter behind a revoked lease waits for the lock delay; that this is long enough is searched here.
//
// A session that can watch enough members polls seldom; another one polls at each tick. The model has both. Change the
// rules here before the code: watches and stream of package session, the poller of internal/hold.
//
//	holder.go    the holder: watches, ticks, polls, the bell
//	proclaim.go  what a leader writes into its entry
//	etcd.go      members, the administrator, the waiter behind
//	model.go     times, scenarios, the rules that are broken on purpose, what must hold
//	state.go     the state
//
// # The rules
//
//   - A session keeps watches of its session key, each on a stream of its own that stays on its member, no two on one
//     member. A watch stands once a linearizable read, sent after its creation, was answered. It counts no more as
//     soon as it fails. A lease is watched while watches stand on a majority of the voting members.
//   - A tick costs no request. Twice in a lock delay one polls, if the lease is not watched, if the hold was never
//     polled, or if the latest poll that was answered was sent long ago. A new hold is polled by the time that it is
//     half a lock delay old. It is as old as the look by which it holds, however late the reply to that came.
//   - An administrator who puts a notice also puts the session key again, as it is: the bell. A watch that hears it,
//     and a read after a creation that shows it, make the session poll at once, or as soon as the poll in flight is
//     answered.
//   - A leader replaces the value of its entry only where that is one it knows, and a value with a notice counts as
//     known once the leader was told. A put that is refused reads what stands, and finds a notice there.
//   - An entry that is removed stands for longer than the time between two slow polls. A waiter begins to hold only by
//     a look at its entry that is younger than this, less the time until its first poll is answered.
//   - A waiter reads at the end of its lock delay, and holds if the reply comes within a quarter of the delay. If it
//     comes later, the delay runs once more, and then a read suffices, however late: so a slow network makes it wait
//     for two delays, not for ever. Where there was no quorum for more than a lock delay, the second delay begins when
//     there is one again.
//
// # What may happen
//
// Time passes in quarters of a lock delay. A poll, and a look, that can be answered is answered within one. Other
// requests take no time, and a member that is well has at once applied what was committed, and told its watches. Each
// of these may happen at any moment:
//
//   - etcd revokes the lease although it was renewed, perhaps before the reply to the look has come; or an
//     administrator puts a notice, with or without the bell, and moves the entry to a lease of its own. The holder may
//     not hold yet then.
//   - A leader proclaims. The put, or its reply, is late or lost, and it is sent again.
//   - A member begins to lag, so that it applies and tells later or never; hangs; or is cut off from the holder alone.
//     Nothing tells the holder. A watch there stands on, and is silent.
//   - A watch fails, with the events that it had not delivered, and is created again, then or later.
//   - The quorum is lost once: no request is answered, until it is back.
//
// # What must hold
//
//   - Early: the waiter does not hold while the holder does not know that its lease was revoked.
//   - Removed: nor while it does not know that its entry was removed.
//   - Kept: no proclaim replaces a notice.
//   - Late: what a read would show, the holder knows within a bound: a ringing kick within one request if the lease is
//     watched, and at the first poll if not; all else by the next slow poll.
//   - Stuck: the holder can always be told.
//
// # What does not hold
//
// TestWhatIsNotPromisedHappens has these, so that the exceptions are known to be all that is needed:
//
//   - A majority of the members lags at once, or is cut off from this holder alone, and the lease is revoked just then:
//     watches that stand there count and are silent. The next slow poll tells. To need a watch on each member would
//     avoid it, and make every session poll while one member is down.
//   - The quorum is lost right after the revocation was judged, and is back within about a lock delay (five quarters),
//     while no watch on a member that is well has told before. This is so whether or not each tick polls.
//
// # What is left out
//
//   - Elections, but for what a leader writes. The entry of a leader, its poll and its notice are those of a lock, and
//     so is what queuemodel says of a removal. Poll and read of a notice are one step here.
//   - A holder that is paused or cut off from all members: its lease expires.
//   - Renewals and their proofs, which would tell, too. They come seldom, and later.
//   - Learners, which must not count; and members that are added, which count once the session has listed them.
//   - That a waiter looks during its delay, too: the second one begins earlier then.
//   - That the bell moves the gate. For the queue it is a put of the session key, which queuemodel has.
package quietmodel
