// Package fencing makes the writes of a client that has lost its lock fail, even
// if the client does not know about the loss yet.
//
// A process can lose a lock at any moment: it is paused, its network fails, its
// lease expires, and another client acquires the lock while the first one is about
// to write. No check before the write prevents that. The receiver can: it compares
// the [Token] that comes with each write with the largest one it has seen, and
// refuses smaller ones.
//
// # Basics
//
//	err := mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
//		w := fencing.NewFencedWriter(lk)
//		_, err := w.Put(ctx, "jobs/7/state", "done")
//		return err // fencing.ErrStale: the lock is lost, and etcd refused the write
//	})
//
// Functions further down find the lock in their context ([FromContext]).
//
// # Which guard
//
//   - For keys in the etcd of the lock: a [FencedWriter]. It compares and writes in
//     one transaction, and needs no marks.
//   - For anything else, send name and token along, and let the receiver keep the
//     largest token, in a [Store]: package sqlfence for databases, [EtcdMarks] for
//     another etcd, [MemoryStore] for what a single process writes. Packages
//     httpfence and grpcfence carry name and token to that receiver.
//   - Where the comparison cannot be atomic with the effect: a [Filter]. It refuses
//     holders that have been stale for a while, and is no guard.
//
// docs/fencing.md says more, also about restoring etcd from a backup
// ([BumpEpoch]).
//
// # Guarantees
//
//   - Of two exclusive holders of one name, the later one has the larger token.
//   - A write of a FencedWriter takes effect only if the holder's entry is, in that
//     transaction, still the one that it acquired. ErrStale means that etcd refused
//     it, and ends the lock or term at once.
//   - What a Store refuses has no effect. What it admits is not overtaken by a
//     larger token before its effect is over.
//   - Errors tell whether the work was done: those of this package mean that it was
//     not, holdfast.ErrOutcomeUnknown that only reading back can tell.
//
// # Not guaranteed
//
//   - Any order between tokens of different names. Shared handles (readers,
//     permits) have no token.
//   - That a value read under the lock is still current when it is written to a
//     guard elsewhere: an older holder can write until the first write or Admit of
//     the new one raises the mark. Read within the guarded effect, or raise the
//     mark first. For a FencedWriter this is no problem.
//   - That a write without an answer (holdfast.ErrOutcomeUnknown) stays without
//     effect. It may arrive for as long as its holder's entry exists, and overwrite
//     what the same holder wrote later.
//   - That etcd's client sends a write only once. If a server or proxy answers
//     DeadlineExceeded or Canceled while the request's context is alive, it sends
//     the write again. If the first copy took effect and the second was refused, the
//     error is ErrStale all the same. An etcd server does that after 5 s at the
//     earliest, so a context that ends before avoids it.
//   - Increasing tokens after etcd was restored from a backup, unless the restore
//     moves revisions forward. Stores with larger marks then refuse every holder
//     until the epoch is raised.
package fencing
