// Package locker is the locks: distributed, in strict order, with fencing
// tokens, over a session on the etcd cluster you run.
//
//	mu := locker.NewMutex(sess, "billing/job-7")
//	err := mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
//		return work(ctx) // ctx ends when the lock is lost
//	})
//
// A Mutex is a name, a Lock is an acquisition. Do is the form to prefer: it
// waits for the work before it lets go. Lock and Unlock are beside it for a lock
// that is held across functions.
//
// # Guarantees
//
//   - At most one entry per name is at the front of the queue by etcd's own
//     record, and Lock returns only after a linearizable read that saw it.
//   - A holder that can no longer be sure is told before etcd can give the lock
//     to another: its contexts end, Check says so.
//   - A waiter whose predecessor's lease ended without a release (a crash, a
//     pause, a revocation) holds only after session.Options.LockDelay, 1 s by
//     default. A release, a Close and an entry deleted by hand cost no delay.
//   - First in, first out. A waiter that loses its lease or its entry queues
//     again at the back, within the same call.
//   - Tokens grow with every acquisition of one name.
//   - However an acquisition fails, it leaves nothing behind: its entry is gone
//     when it returns, or, if etcd did not answer, the session removes it once
//     etcd does, and at the latest it goes with the lease.
//
// # Not guaranteed
//
//   - That a process which is paused between a Check and a write does not
//     write. Nothing that runs in the process can promise that; a fence can:
//     see package fencing.
//   - That a lock survives its session: when etcd cannot be reached for about
//     the TTL, all locks of the session are lost.
//   - That a holder whose lease is revoked without an announcement is told before
//     a newcomer that never waited holds: see package session.
//   - Prompt notice when an entry is deleted by hand: up to 2 s while etcd is
//     reachable.
//
// There is no sync.Locker here on purpose: it has no context, no error, and no
// way to say that the lock was lost.
package locker
