// Package election elects one leader at a time among the processes that use the same etcd cluster. It
// tells the leader when its term ends, and observers who leads.
//
//	el := election.New(sess, "scheduler").With(election.Options{Value: "node-1"})
//	err := el.Run(ctx, func(ctx context.Context, t *election.Term) error {
//		return lead(ctx) // ctx ends with the term
//	})
//
// An Election is a name, a Term is one leadership. The term's entry in etcd is attached to the lease
// of a session, and the oldest entry leads.
//
// # Guarantees
//
//   - A campaign succeeds only after a linearizable read has found its entry at the front of the
//     queue.
//   - A term's contexts are canceled, and Check reports the loss, before any etcd leader may expire
//     the lease; if the entry is deleted by hand, within 6 s while etcd is reachable.
//   - A successor waits [session.Options].LockDelay, 2 s by default, if the leader's lease ended without
//     a resignation.
//   - The entry stays until the function has returned or Options.DrainTimeout is over; then others
//     lead, and Run waits for the function. Functions of one election on one session never overlap.
//   - A kicked leader (admin.Client.Kick) is told as fast. Its entry stays until its function has returned,
//     or until Term.Resign: then the next one leads.
//   - First in, first out; tokens grow; one resignation wakes one candidate. Observers see leaders in
//     etcd's order.
//   - A failed campaign leaves no entry. If etcd did not answer, the session removes it later, or it
//     expires with the lease.
//
// # Not guaranteed
//
//   - That a process paused between a Check and a write does not write, nor a function without regard
//     for its context. Fence the writes: see package fencing.
//   - That a term survives an outage of etcd of more than half the TTL, or such a pause of its process.
//   - After a revocation of its lease by hand, in rare cases, that the leader is told before the next
//     one leads: see docs/guarantees.md.
//   - That what an observer sees is still true, or is every leader.
//   - That functions on two sessions of one process do not overlap after a loss.
//
// # States
//
//	candidate ───▶ leading ◀───▶ suspended
//	                  │              │
//	                  ├──────────────┤
//	                  ▼              ▼
//	              released         lost
//
// Term.Check reports them. A candidate that loses its entry or lease queues again, at the back. A term
// is lost when the trusted time is over (see package session), the lease or the entry is gone, the
// session was closed, or the function did not drain. Released and lost are final.
//
// After a crash of the leader's process its lease expires at most the TTL and about half a second
// after the last renewal; the next candidate leads after the lock delay.
package election
