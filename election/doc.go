// Package election is leader election: candidates that lead one at a time, are
// told when they no longer do, and observers that know who does, or that no
// candidate does.
//
//	el := election.New(sess, "scheduler")
//	err := el.Run(ctx, "node-1", func(ctx context.Context, t *election.Term) error {
//		return lead(ctx) // ctx ends when the term does
//	})
//
// An [Election] is a name, a [Term] is one leadership. [Election.Run] leads
// term after term until its context ends, [Election.RunWhileLeader] leads once;
// both wait for the work before they let go. [Election.Campaign] and
// [Term.Resign] are for what does not fit a function. [Election.Leader] asks
// who leads, [Election.Observe] is told, and an [Observer] keeps it in memory.
// A Term is to an election what a lock is to a mutex, and the same queue is
// beneath.
//
// A process that is no candidate asks and watches who leads with a [Reader]: it
// needs an etcd client, a role that may read, and no session.
//
// # States
//
//	candidate ──won──▶ leading ◀──────▶ suspended
//	    │                 │ ╲               │
//	    │ error       Resign ╲ loss         │ loss
//	    ▼             Yield   ╲             │
//	 nothing              ▼    ╰─▶ lost ◀───╯
//	 is left          released
//
// [Term.Check] judges the state at the call, without an RPC: nil,
// holdfast.ErrSuspended, a *holdfast.LostError or holdfast.ErrReleased. Lost and
// released are final; the next term is another Term, with a larger token.
//
//   - Leading: renewals of the session's lease are confirmed in time.
//   - Suspended: half of the trusted time has passed without one. No other
//     candidate leads yet, and it cannot be proved that this will last: stop side
//     effects.
//   - Lost: trusted-until has passed, or etcd said that the lease or the entry
//     is gone, or the session was closed, or the work did not drain. The typed
//     cause says which.
//
// # Guarantees
//
//   - A campaign that returns no error holds an entry that a linearizable read
//     has seen at the front. One that fails leaves no entry; if etcd did not
//     answer, the session removes the entry once etcd does, also one that appears
//     later, and at the latest it goes with the lease.
//   - Deposed means told before another can lead: a term's contexts end, and
//     Check says so, no later than the earliest moment at which any etcd leader
//     may expire its lease. (Entries deleted by hand: within 2 s while etcd is
//     reachable.)
//   - A candidate whose predecessor's lease ended without a resignation (a crash,
//     a pause, a revocation) leads only after session.Options.LockDelay, 1 s by
//     default. A resignation and a Close cost no delay.
//   - Drain, then release: the entry stays, and is renewed, until the function
//     has returned. Only Options.DrainTimeout ends that, with [ErrNotDrained].
//   - On one session the functions of RunWhileLeader and Run of one election
//     never overlap, also when one outlives its term.
//   - First in, first out. One resignation wakes one candidate.
//   - Tokens grow from term to term.
//   - A suspension in which nothing was lost ends no term. Under
//     Options.CancelOnSuspended Run calls the function again in the same term.
//   - Observers are told of leaders in the order of etcd's history, and of
//     vacancies; an observation never ends silently.
//   - Removing, proclaiming and yielding concern the own entry only: an
//     ex-leader cannot harm its successor.
//
// # Not guaranteed
//
//   - That a leader which is paused between a Check and a write does not
//     write. Nothing that runs in the process can promise that; a fence can:
//     see package fencing. The same goes for a function that ignores its
//     context.
//   - That a term survives its session: when etcd cannot be reached for about
//     the TTL, the term is lost, even if no other candidate can lead either.
//   - That a leader whose lease is revoked without an announcement is told before
//     a newcomer that never waited leads: see package session.
//   - That what an observer was told still is so when it reads it, or that it
//     is told of every leader. To act on leadership, be the leader.
//   - That functions of two sessions in one process do not overlap when one of
//     them outlives its term. Use one session per process.
//   - Priorities. Who queues first leads first.
//
// # What happens when
//
//   - The leader resigns, or its process ends in order: the next leads as soon
//     as etcd has removed the entry and answered one read.
//   - The leader's process dies: its entry stays until etcd expires the lease,
//     at most the TTL and about half a second after its last renewal. The next
//     in the queue leads after the lock delay. The one that died queues at the
//     back when it is back.
//   - The leader is cut off from etcd: suspended, then lost, before the next
//     can lead. Its session gets a new lease when it can, and Run queues again.
//   - The leader's process is paused for longer than its lease: the first
//     Check afterwards says lost, and a fenced write is refused.
//   - The function panics: the term is released and the panic goes on.
//   - The function ignores the end of its context: after DrainTimeout the term
//     is lost and the others go on. Run waits for the function; a health check
//     ([Election.HealthHandler]) fails, so that the process can be restarted.
//   - etcd's leader changes, a member restarts, history is compacted: nothing,
//     as long as renewals get through in time. The same for one member of several
//     that hangs.
//   - A candidate loses its lease while it waits: it queues again at the back,
//     within the same call.
//
// docs/elections.md is a guide to all of it.
package election
