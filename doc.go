// Package holdfast has the errors, causes and states that the packages of this module share: locks, leader election and
// fencing for Go services on the etcd cluster they already run.
//
// A lock over a network can be lost while its holder is paused, cut off or slow. holdfast tells the holder
// before another client can acquire the lock. If the holder was paused and missed the news, its fencing token makes its
// late writes fail.
//
// # Which one do I need
//
//   - One session per process, the ground of all else: package [github.com/holdfast-go/holdfast/session].
//   - At most one process does something now: [github.com/holdfast-go/holdfast/locker], Mutex.Do; or skip if the lock
//     is held or waited for: TryDo; or hold it across functions: Lock, Lock.Unlock.
//   - One process leads, term after term: [github.com/holdfast-go/holdfast/election], Election.Run; who leads, without
//     being a candidate: NewReader.
//   - Processes share many parts: [github.com/holdfast-go/holdfast/shard]; or know one another:
//     [github.com/holdfast-go/holdfast/member].
//   - Writes fail once another client holds the lock: [github.com/holdfast-go/holdfast/fencing] and its packages:
//     etcdfence for etcd, sqlfence for databases, httpfence and grpcfence for services.
//   - Contend with etcd's concurrency.Mutex, "etcdctl lock" or v3lock, and migrate from them: locker.NewMutexAt,
//     docs/migrating.md.
//   - Show which client holds and which wait: [github.com/holdfast-go/holdfast/admin]; record it:
//     [github.com/holdfast-go/holdfast/audit].
//   - When a job ran last: [github.com/holdfast-go/holdfast/lastrun]. Retry requests of your own:
//     [github.com/holdfast-go/holdfast/backoff].
//   - Test what a service does when it loses its lock: [github.com/holdfast-go/holdfast/etcdfake], in virtual time, or
//     [github.com/holdfast-go/holdfast/etcdtest], a real etcd.
//
// docs/choosing.md says more, also when no distributed lock is needed; docs/kubernetes.md has a manifest.
//
// # Words
//
// Each kind begins and ends with Go's own words for it:
//
//	Mutex, RWMutex, TreeMutex, Set   Lock, TryLock, RLock   Lock, ReadLock, SetLock: Unlock
//	Semaphore                        Acquire, TryAcquire    Permit: Release
//	Election                         Campaign               Term: Resign
//	a group of package member        Join                   Member: Leave
//	Shards                           Run                    Shard: its function returns
//	Session, Observer                New, Observer          Close
//
// Options are structs, passed by value. The zero value of each field is its default; With replaces them all.
//
// # Errors
//
// Decide with errors.Is on the sentinels: [ErrLost] (stop; acquire again), [ErrSuspended] (pause side effects and check
// again), [ErrClosed], [ErrOutcomeUnknown] (read back before repeating). [*LostError] says what was lost and why.
// [*ArgumentError] and [*NameError] report bad input; nothing was sent.
//
// To start: go run ./examples/quickstart. README.md has the guarantees, DESIGN.md how they are kept.
package holdfast
