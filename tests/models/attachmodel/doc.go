// Package attachmodel searches every interleaving of Detach and Attach for one that breaks a rule. They are built by
// these rules, in internal/hold/detach.go and internal/queue/attach.go: change them here first.
//
//	model.go    scenarios, the rules that are broken on purpose, what must hold
//	bearer.go   sessions: they hold, detach, attach, give up, release
//	others.go   leases that end, late copies, a deletion by hand, the waiter behind
//	state.go    the state
//
// # What it is for
//
// A lock is acquired in one process and released in another, or by the same one after its restart:
//
//	ticket, err := lk.Detach(ctx, time.Hour)   // lk.Check is ErrReleased from now on
//	lk, err := locker.Attach(ctx, sess, ticket) // once, anywhere, within that hour
//
// # The protocol
//
// An entry E and its claim C are put by one Txn, so they have one create revision, which is the token. Each put of
// them, later, keeps it. The mod revision of E counts what was done to it since.
//
//	rev 10  A puts E and C: E on A's L1, C on A's L2
//	rev 20  Detach:  If mod(E) = 10  Then put E and C on D, a lease of the time that was asked for
//	rev 30  Attach:  If mod(E) = 20, mod(B's session key) = gate  Then put E on B's L1, C on B's L2
//	rev 40  B releases: If create(E) = 10  Then delete E and C
//
// Its rules:
//
//   - Detach ends the hold before it sends anything. The ticket is the key, both revisions and D. Without a reply
//     Detach asks again: E on D is its own doing. A caller that gives up gets no ticket, and the session removes E.
//   - While E is on D there is no holder. So when D ends, by its time or because it was revoked, both keys go in one
//     revision, and the next one holds at once, without a delay: there is no holder who must be told.
//   - Attach compares the mod revision of its ticket. So of two that have one ticket, one succeeds, and a ticket of an
//     earlier Detach is refused. Refused, it reads E: on its own L1, by the mod revision of a copy of its own, is
//     success. Else the ticket was used, was kicked, or is late.
//   - A caller of Attach that gives up has the session put its key again: no copy comes later. Then E is read. On this
//     session's L1 no other session can hold by it, and it is deleted. If it is still on D, the ticket stays good.
//   - C names, in its value, the session that holds, and each Attach writes that anew. A waiter behind a dead claim
//     waits by the session key of that session. The key of E names the session that has queued, and that may be gone.
//
// # What each place says of an entry that was moved so
//
// The last part of E's key is the lease of the session that has queued. Where code takes that for the lease of the
// holder, it is to take another:
//
//	the waiter's look        the session that C names, for LockDelay or ToldWithin (internal/queue/wait.go. One
//	                         claim speaks for all of its session there: these are asked about by themselves)
//	Kick, Remove: the bell   the session key of the lease that E is on (admin/request.go does so today)
//	Kick of a detached E     revokes D, the lease that E was seen on: both keys go, and after an Attach nothing is on D.
//	                         So it compares nothing. No bell: none holds. Remove is the same
//	explain, watch: the end  the session that C named at that revision; "detached" while E was on D; and where both keys
//	                         go at once while E is on D: "the ticket ran out"
//	show                     "detached by OWNER until TIME" instead of the holder; held: the name is taken. E's value
//	                         says detached (at, until), so no lease need be asked. After Attach its owner, host and PID
//	                         are those of the new session; queued_at and held_since stay
//	sweeper                  has E only after a caller has given up; after an Attach it looks first whose lease E is on
//	Close, a loss            of the session that has queued changes nothing once E is on D
//
// # Limits
//
// MaxHold goes on from the first hold, so the ticket has its time. MinHold counts from the release. OnOverrun and
// Auditor are those of the session that attaches; an audit tells "detached" and "attached", with one token. A guard
// cannot tell work of before from work of after: the token is the same, so the first process must have stopped when
// Detach returns. Elections, sets and trees have none: a leader that detaches is no leader, and a set has entries in
// several queues, each of which would be compared.
//
// # What may happen
//
// At any moment a reply is lost, a copy of a Txn is late, a caller gives up, D ends, etcd revokes a lease early, a
// session is told of that or closes, and E is deleted by hand. A kick is an end of D.
//
// # What must hold
//
//   - exclusion: no two believe that they hold.
//   - needless: where nothing went wrong, none waits for a delay.
//   - stuck: the name can become free, by steps that no fault and no caller has to make.
//
// # What is left out
//
// All that queuemodel has: one waiter stands for all, and the first hold is there from the start. L2 that is lost
// early, and session keys deleted by hand: what follows is as there.
package attachmodel
