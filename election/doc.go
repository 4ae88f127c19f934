// Package election elects one leader at a time among the processes that use the
// same etcd cluster. It tells the leader when its term ends, and observers who
// leads.
//
// An [Election] is a name, a [Term] is one leadership. The term's entry in etcd
// hangs on the lease of a session, and the oldest entry leads. Etcd decides who
// leads; the local clock only bounds how long a leader trusts its last confirmed
// renewal (see package session).
//
// # Guarantees
//
//   - One leader: a campaign succeeds after a linearizable read that found its entry
//     at the front of the queue.
//   - Told before the next: a term's contexts are canceled, and Check reports the
//     loss, before any etcd leader may expire the lease. If the entry is deleted by
//     hand, within 2 s while etcd is reachable.
//   - A successor waits: after a lease that ended without a resignation, the next
//     candidate leads only after session.Options.LockDelay, 1 s by default.
//   - Drain, then release: the entry stays, and its lease is renewed, until the
//     function has returned, or Options.DrainTimeout is over.
//   - No overlap on one session: functions of Run and RunWhileLeader of one election
//     never run at the same time, even if one outlives its term.
//   - First in, first out; one resignation wakes one candidate.
//   - Tokens grow from term to term.
//   - Observers see leaders and vacancies in the order of etcd's history, and an
//     error when the observation ends.
//   - A failed campaign leaves no entry. If etcd did not answer, the session removes
//     it later; at the latest it expires with the lease.
//   - An ex-leader cannot affect its successor: Resign, Proclaim and Yield compare
//     the term's own entry.
//
// # Not guaranteed
//
//   - That a process paused between a Check and a write does not write, nor a
//     function that ignores its context. Fence the writes: see package fencing.
//   - That a term outlives its session. If etcd is unreachable for about the TTL the
//     term is lost, even if no other candidate can lead either.
//   - That a leader whose lease is revoked by hand is told before a candidate leads
//     that never waited: see package session.
//   - That what an observer sees is still true, or that it sees every leader.
//   - That functions of two sessions in one process do not overlap after a loss. Use
//     one session per process.
//   - Priorities.
//
// # States
//
//	           queue again
//	            ╭───────╮ lease or entry lost
//	            ▼       │
//	Campaign ─▶ candidate
//	                │ its entry is at the front
//	                ▼       no renewal confirmed for half the trusted time
//	             leading ─────────────────────────────▶ suspended
//	                │ │ ◀─────────────────────────────── │
//	 Resign, Yield  │ │ lease or entry lost  confirmed    │ trusted time over,
//	                ▼ ╰──────────────╮                   │ lease or entry lost
//	            released             ╰─────▶ lost ◀──────╯
//
// [Term.Check] reports the state without an RPC: nil, holdfast.ErrSuspended, a
// *holdfast.LostError or holdfast.ErrReleased. A suspended term still leads by etcd's
// record, but cannot prove it: stop side effects. Lost and released are final; the
// next term is another Term with a larger token.
//
// # What happens when
//
//   - The leader resigns, or its session is closed: the next candidate leads after
//     one removal and one read.
//   - The leader's process dies: its lease expires at most the TTL and about half a
//     second after the last renewal; the next leads after the lock delay.
//   - The leader is cut off from etcd: suspended, then lost. When its session has a
//     new lease, Run campaigns again. After a shorter outage the same term continues.
//   - The leader's process is paused for longer than its lease: the first Check
//     afterwards reports the loss, and fenced writes are refused.
//   - The function panics: the term is released, then the panic continues.
//   - The function ignores the end of its context: after DrainTimeout others lead.
//     Run waits for it, and HealthHandler answers 503.
//   - A candidate loses its lease: it queues again, at the back, in the same call.
//   - etcd's leader changes, a member restarts or hangs, history is compacted:
//     nothing, while renewals are confirmed in time.
//
// # Use
//
// [Election.Run] leads term after term until its context ends:
//
//	el := election.New(sess, "scheduler")
//	err := el.Run(ctx, "node-1", func(ctx context.Context, t *election.Term) error {
//		return lead(ctx) // ctx ends with the term
//	})
//
// [Election.RunWhileLeader] leads once. [Election.Campaign] and [Term.Resign] are for
// leadership that does not fit a function. [Election.Leader] asks who leads,
// [Election.Observe] notifies, an [Observer] keeps the answer in memory. A [Reader]
// does so for a process that is not a candidate: it needs no session.
//
// A Term is to an election what a locker.Lock is to a mutex, except:
//
//   - The function runs on a goroutine of its own, in Mutex.Do on the caller's. A
//     stuck leader stops a service until another takes over, so DrainTimeout must be
//     able to leave its function behind.
//   - There is no MaxHold, which bounds how long others wait for a lock: a healthy
//     leader may lead for ever. To take turns, return from the function of Run.
//
// docs/elections.md is a guide.
package election
