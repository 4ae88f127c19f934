// Package locker provides distributed locks on an etcd cluster, with fencing tokens.
//
//	mu := locker.NewMutex(sess, "billing/job-7")
//	err := mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
//		return work(ctx) // ctx is canceled when the lock is lost
//	})
//
// A Mutex is a name; each acquisition is a Lock. Prefer Do: it releases the lock only
// after the work has returned. Lock and Unlock are for a lock that is held across
// functions.
//
// # Guarantees
//
//   - At most one entry per name is at the front of the queue in etcd, and Lock returns
//     only after a linearizable read has seen its own entry there.
//   - A holder that is no longer sure is told before etcd can give the lock to another:
//     its contexts are canceled, and Check says so.
//   - If the lease of the entry ahead ended without a release (a crash, a pause, a
//     revocation), the waiter holds only after session.Options.LockDelay, 1 s by default.
//     A release, a Close and an entry deleted by hand cost no delay.
//   - First in, first out. A waiter that loses its lease or its entry queues again at the
//     back, within the same call.
//   - Tokens grow with each acquisition of a name.
//   - An administrator who asks for the lock (admin.Client.Kick) ends the hold and not the
//     entry: the name is free when the holder releases it. See docs/operations.md.
//   - A failed acquisition leaves nothing behind: its entry is gone when it returns. If
//     etcd did not answer, the session removes the entry once etcd does, or it goes with
//     the lease.
//
// # Not guaranteed
//
//   - That a process which is paused between a Check and a write does not write. Nothing
//     that runs in the process can guarantee that; a fence can: see package fencing.
//   - That a lock survives its session. If etcd cannot be reached for about the TTL, all
//     locks of the session are lost.
//   - That a holder whose lease is revoked without notice is told before a newcomer that
//     never waited holds: see package session.
//   - Prompt notice of an entry that is deleted by hand. It takes up to 2 s while etcd can
//     be reached.
//
// There is no sync.Locker: it has no context, no error, and no way to say that the lock
// was lost.
package locker
