// Package etcdfence guards writes to etcd: a write takes effect only while its lock is held, or with a token that is
// not below the mark of the resource.
//
//	err := mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
//		w := etcdfence.NewWriter(lk)
//		_, err := w.Put(ctx, "jobs/7/state", "done")
//		return err // fencing.ErrStale: the lock is lost, and etcd refused the write
//	})
//
// [Writer] is for keys in the etcd of the lock. [Marks] are for another etcd, and for services that get name and token
// from their clients. [BumpEpoch] is for operators, after etcd was restored from a backup.
//
// # Guarantees
//
//   - A write of a Writer takes effect only while its holder's entry exists.
//   - What Marks commit, they commit in the order of the tokens.
//
// # Not guaranteed
//
//   - That an unanswered write has no effect later. While its holder's entry exists, it may overwrite
//     what the same holder wrote since.
//   - That etcd's client sends a write only once. If a server or proxy answers DeadlineExceeded or
//     Canceled while the context is alive, after 5 s at the least, it sends the write again; if
//     the first copy took effect and the second was refused, the error is ErrStale all the same. So
//     end the context before.
package etcdfence
