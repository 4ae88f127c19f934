// Package fencing makes the writes of a client that has lost its lock fail, even if the client does
// not know about the loss yet: the receiver compares the [holdfast.Token] of each write with the largest one it
// has seen, and refuses smaller ones.
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
//   - For keys in the etcd of the lock: a [FencedWriter].
//   - For anything else a [Store], with the largest token: package sqlfence for databases,
//     [EtcdMarks] for another etcd, [MemoryStore] for what a single process writes. Packages httpfence
//     and grpcfence carry name and token to it.
//
// docs/fencing.md says more, also about restoring etcd from a backup ([BumpEpoch]).
//
// # Guarantees
//
//   - Of two exclusive holders of one name, the later one has the larger token.
//   - A write of a FencedWriter takes effect only while its holder's entry exists.
//   - What a Store refuses has no effect. What it admits is not overtaken by a larger token before its
//     effect is over.
//   - Errors of this package mean that nothing was done; after holdfast.ErrOutcomeUnknown only reading
//     back can tell.
//
// # Not guaranteed
//
//   - Any order between tokens of different names.
//   - That a value read under the lock is still current when it is written elsewhere: read within the
//     guarded effect, or raise the mark first. A FencedWriter has no such gap.
//   - That an unanswered write has no effect later. While its holder's entry exists, it may overwrite
//     what the same holder wrote since.
//   - That etcd's client sends a write only once. If a server or proxy answers DeadlineExceeded or
//     Canceled while the context is alive, after 5 s at the least, it sends the write again; if
//     the first copy took effect and the second was refused, the error is ErrStale all the same. So
//     end the context before.
//   - Increasing tokens after a restore of etcd without --bump-revision or [BumpEpoch].
package fencing
