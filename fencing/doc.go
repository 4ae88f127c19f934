// Package fencing keeps a holder that has lost its lock, and does not know it
// yet, from doing damage.
//
// A lock held over a network can be lost at any moment: the process is paused,
// the network fails, the lease expires, and another client holds the lock while
// the first one is about to write. No check made before a write can prevent
// that. What can is the other side: it compares the [Token] that comes with the
// write with the newest one it has seen, and refuses an older one.
//
// # Where to check
//
//   - What is written to the same etcd as the lock: a [FencedWriter]. The
//     comparison and the write are one transaction.
//   - What is written elsewhere: send the name and the token along, and let the
//     other side keep the newest token for that name. It does so in a [Store],
//     whose comparison and effect cannot come apart: sqlfence's for a database,
//     [EtcdMarks] for another etcd, [MemoryStore] for what one process has to
//     itself. Packages httpfence and grpcfence carry both over HTTP and gRPC;
//     sqlfence.Marks guards a database transaction of your own.
//   - Where the comparison cannot be made with the effect: a [Filter] turns away
//     those who have been stale for a while. It is no guard.
//
// docs/fencing.md says which guard is for which resource, and what to do after
// etcd was restored from a backup ([BumpEpoch]).
//
// # Basics
//
//	err := mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
//		w := fencing.NewFencedWriter(lk)
//		_, err := w.Put(ctx, "jobs/7/state", "done")
//		return err // fencing.ErrStale: the lock is lost, and etcd refused the write
//	})
//
// Code further down finds the holder in the context ([FromContext]).
//
// A key that is read while the lock is held may be computed with and written by
// the same FencedWriter. With a mark elsewhere that is not so: an older holder can
// still write after the read, until the mark is raised. Read within the guarded
// effect, or raise the mark first; docs/fencing.md has the picture.
//
// # What is guaranteed
//
//   - Tokens of one name strictly increase from one exclusive holder to the
//     next, so that of two holders the later one has the larger token.
//   - What a FencedWriter sends takes effect only if, at that point of etcd's
//     history, the holder's entry is still the one it acquired.
//   - [ErrStale] from a FencedWriter means that etcd refused the write. It ends
//     the lock or term at once.
//   - Every Store applies [Claim.CheckMark], and [VerdictOf] tells of any error
//     here whether the work was done.
//   - What a Store refuses has no effect, and what it admits is not overtaken by
//     a larger token before its effect is over.
//
// # What is not
//
//   - Tokens of different names cannot be compared, nor can those of shared
//     handles (readers, permits), which have none.
//   - A write whose answer is lost (holdfast.ErrOutcomeUnknown) may take effect
//     later, for as long as its holder's entry exists. It can so overwrite what
//     the same holder wrote after it.
//   - A FencedWriter never sends twice, but etcd's client below it does if a
//     server or proxy answers DeadlineExceeded or Canceled while the request's
//     context is alive; an etcd server does so after 5 s at the earliest. If the
//     first send took effect and the second was refused, the answer is ErrStale
//     all the same. A context that ends within 5 s keeps etcd's own servers from
//     getting there.
//   - After etcd was restored from a backup, revisions, and tokens with them,
//     can come again unless the restore moves them past the old ones. A Store
//     that remembers larger ones refuses until the epoch is raised.
package fencing
