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
//   - One leader: a campaign succeeds only after a linearizable read has found its
//     entry at the front of the queue.
//   - Told before the next: a term's contexts are canceled, and Check reports the
//     loss, before any etcd leader may expire the lease; if the entry is deleted by
//     hand, within 2 s while etcd is reachable.
//   - A successor waits session.Options.LockDelay, 1 s by default, if the leader's
//     lease ended without a resignation.
//   - Drain, then release: the entry stays, and its lease is renewed, until the
//     function has returned or Options.DrainTimeout is over.
//   - On one session functions of one election never run at the same time, even if one
//     outlives its term.
//   - First in, first out; tokens grow; one resignation wakes one candidate.
//   - Observers see leaders and vacancies in the order of etcd's history, and an error
//     at the end.
//   - A failed campaign leaves no entry. If etcd did not answer, the session removes
//     it later; at the latest it expires with the lease.
//   - An ex-leader cannot affect its successor.
//
// # Not guaranteed
//
//   - That a process paused between a Check and a write, or a function that ignores
//     its context, does not write. Fence the writes: see package fencing.
//   - That a term survives an outage of etcd of about the TTL, even if no other
//     candidate can lead either.
//   - That a leader whose lease is revoked by hand is told before a candidate leads
//     that never waited: see package session.
//   - That what an observer sees is still true, or that it sees every leader.
//   - That functions on two sessions of one process do not overlap after a loss.
//   - Priorities.
//
// # States
//
//	candidate ───▶ leading ◀───▶ suspended
//	                  │              │
//	                  ├──────────────┤
//	                  ▼              ▼
//	              released         lost
//
// [Term.Check] reports them without an RPC.
//
//   - Candidate: the entry is in the queue. If it or its lease is lost, the candidate
//     queues again, at the back.
//   - Leading (nil): the entry is at the front, and renewals are confirmed in time.
//   - Suspended (holdfast.ErrSuspended): no renewal was confirmed for half of the
//     trusted time. No other candidate leads yet, but one may soon: stop side effects.
//   - Lost (*holdfast.LostError): the trusted time is over, the lease or the entry is
//     gone, the session was closed, or the function did not drain.
//   - Released (holdfast.ErrReleased): resigned or yielded.
//
// Lost and released are final; the next term is another Term with a larger token.
//
// # Failures
//
//   - The leader's process dies: its lease expires at most the TTL and about half a
//     second after the last renewal; the next candidate leads after the lock delay.
//   - The leader is cut off from etcd: suspended, then lost. When its session has a
//     new lease, Run campaigns again. A shorter outage costs nothing.
//   - The leader's process is paused for longer than its lease: the first Check
//     afterwards reports the loss, and fenced writes are refused.
//   - The function panics: the term is released, then the panic continues.
//   - The function ignores the end of its context: after DrainTimeout others lead. Run
//     waits for it, and HealthHandler answers 503.
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
// [Election.Observe] notifies, an [Observer] keeps the answer in memory; a [Reader]
// does so without a session.
//
// A Term is to an election what a locker.Lock is to a mutex, with two differences. The
// function runs on a goroutine of its own, in Mutex.Do on the caller's: a stuck leader
// stops a service, so DrainTimeout must be able to leave its function behind. And
// there is no MaxHold, since a healthy leader may lead for ever; to take turns, return
// from the function of Run.
//
// docs/elections.md is a guide.
package election
