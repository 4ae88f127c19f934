// Package locker provides distributed locks on an etcd cluster, with fencing tokens.
//
//	mu := locker.NewMutex(sess, "billing/job-7")
//	err := mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
//		return work(ctx) // ctx is canceled when the lock is lost
//	})
//
// A Mutex is a name; each acquisition is a Lock. Prefer Do: it releases the lock only after the work
// has returned. Lock and Unlock are for a lock that is held across functions. An [RWMutex] is the
// Mutex of its name with readers; [RWMutex.DoDowngradable] writes first and then reads, with no
// writer in between. A [Set] acquires several names together, and a [TreeMutex] a path with all that
// is below it. Of a [Semaphore] up to n permits are held at a time.
//
// # Several names
//
// A Set and a TreeMutex put all their entries into etcd by one transaction, for the requests of a
// Mutex. So of any two acquisitions one is ahead of the other in every queue that both are in, and
// they never wait for each other. They are lost as a whole. What waits for one name of a set holds up
// those that come after it for the others: keep sets small, and hold them for a short time.
//
// Not provided: an upgrade from reading to writing, because two readers that upgrade would wait for
// each other; tree locks for reading; permits of a Semaphore in a Set; sets, tree locks and semaphores
// under the prefixes of etcd's own clients; and MinHold for what has several entries.
//
// # Guarantees
//
//   - Lock returns only after a linearizable read has seen its entry at the front of the queue.
//   - A holder is told, by its contexts and by Check, before etcd can give the lock to a waiter. If
//     the lease of the entry ahead ended without a release, the waiter also waits
//     session.Options.LockDelay, 2 s by default.
//   - First in, first out. A waiter that loses its lease or its entry queues again at the back, within
//     the same call.
//   - Tokens grow with each acquisition of a name.
//   - An administrator who asks for the lock (admin.Client.Kick) ends the hold and not the entry: the
//     name is free when the holder releases it.
//   - A failed acquisition leaves no entry. If etcd did not answer, the session removes it later, or
//     it expires with the lease.
//
// # Not guaranteed
//
//   - That a process which is paused between a Check and a write does not write. Fence the writes: see
//     package fencing.
//   - That a lock survives an outage of etcd of about the TTL.
//   - That a holder whose lease is revoked is told before a client holds that queued later: see
//     package session.
//   - Prompt notice of an entry that is deleted by hand: it takes up to 6 s while etcd can be reached.
//   - That guards which compare tokens by name refuse the former holder of "billing/job-7" once a
//     TreeMutex holds "billing": a FencedWriter does, because it compares all entries.
//
// There is no sync.Locker: it could not say that the lock was lost.
package locker
