// Package locker provides distributed locks on an etcd cluster, with fencing tokens.
//
//	mu := locker.NewMutex(sess, "billing/job-7")
//	err := mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
//		return work(ctx) // ctx is canceled when the lock is lost
//	})
//
// A Mutex is a name; each acquisition is a Lock. Prefer Do: it releases the lock only after the work
// has returned. Lock and Unlock are for a lock across functions. An [RWMutex] is the Mutex of its name
// with readers; [RWMutex.DoDowngradable] writes first and then reads, with no writer in between. A
// [Set] acquires several names together, and a [TreeMutex] a path with everything below it. Of a
// [Semaphore] up to n permits are held at a time.
//
// # Several names
//
// A Set and a TreeMutex put all their entries into etcd by one transaction, for the requests of a
// Mutex. So any two acquisitions are in the same order in all their queues, and never wait for each
// other:
//
//	rev 10  A puts its entries of "x" and "y", and holds
//	rev 12  B puts its entries of "y" and "z": it waits for A at "y", and C waits for B at "z"
//
// They are lost as a whole. B holds up C, although "z" is free: keep sets small, and hold them for a
// short time.
//
// Not provided: an upgrade from reading to writing, because two upgrading readers would wait for
// each other; tree locks for reading; permits of a Semaphore in a Set; sets, tree locks and semaphores
// under the prefixes of etcd's own clients; and MinHold for anything but a Mutex.
//
// # Guarantees
//
//   - Lock returns only after a linearizable read has seen its entry at the front of the queue.
//   - A holder is told, by its contexts and by Check, before etcd can give the lock to a waiter. If
//     the lease of the entry ahead ended without a release, the waiter also waits
//     session.Options.LockDelay, 2 s by default.
//   - First in, first out. A waiter without its lease or its entry queues again at the back, within
//     the same call.
//   - Tokens grow with each acquisition of a name.
//   - An administrator who asks for the lock (admin.Client.Kick) ends the hold and not the entry: the
//     name is free when the holder releases it.
//   - A failed acquisition leaves no entry. If etcd did not answer, the session removes it later, or
//     it expires with the lease.
//
// # Not guaranteed
//
//   - That a process does not write if it is paused between a Check and a write. Fence the writes: see
//     package fencing.
//   - That a lock survives an outage of etcd of more than half the TTL.
//   - After a revocation of its lease, in rare cases, that the holder is told before the next one
//     holds: see docs/guarantees.md.
//   - Prompt notice of a deletion by hand: it takes up to 6 s while etcd can be reached.
//   - Tokens of a TreeMutex across paths: a guard by names does not refuse the former holder of
//     "billing/job-7" once "billing" is held. An etcdfence.Writer does, because it compares all entries.
//
// There is no sync.Locker: it could not say that the lock was lost.
package locker
