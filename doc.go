// Package holdfast is the vocabulary of an SDK for locks, leader election and fencing in Go services that already
// run etcd: the errors, causes and states that all its packages share. There is no other server, and no state
// outside etcd.
//
// A lock that is held over a network can be lost while its holder is paused, cut off or slow. holdfast tells the
// holder before another client can acquire the lock, and gives each holder a fencing token: if the holder was
// paused and missed that, the token makes its late writes fail.
//
// # Packages
//
//   - [github.com/holdfast-go/holdfast/session] keeps one lease alive, says whether it can be trusted now, reports
//     a loss, and gets another lease. One Session per process serves any number of locks.
//   - [github.com/holdfast-go/holdfast/locker] has locks. A Mutex is a name, a Lock is one acquisition of it.
//   - [github.com/holdfast-go/holdfast/election] has leader election. An Election is a name, a Term is one
//     leadership. It also has observers, which need no session (Reader), and handlers for health probes.
//   - [github.com/holdfast-go/holdfast/fencing] has tokens, and the FencedWriter, which writes to etcd only while
//     its holder still holds. Its packages sqlfence, httpfence and grpcfence check tokens in databases and
//     services.
//   - [github.com/holdfast-go/holdfast/admin] shows which client holds a lock or
//     leads, which ones wait, and each change, without a session.
//   - [github.com/holdfast-go/holdfast/audit] records grants, releases, losses and
//     refusals.
//   - [github.com/holdfast-go/holdfast/backoff] retries requests, and [github.com/holdfast-go/holdfast/etcderr]
//     says what an error of etcd means for the request that failed.
//   - [github.com/holdfast-go/holdfast/etcdfake] is an etcd in memory, for unit tests in virtual time.
//   - [github.com/holdfast-go/holdfast/etcdtest] is a real etcd inside a test, with faults.
//
// # Which one do I need
//
//   - At most one process should do something now: locker.Mutex.Do.
//   - The same, or skip if another client holds or waits for the lock: locker.Mutex.TryDo.
//   - Hold a lock across functions: locker.Mutex.Lock and locker.Lock.Unlock.
//   - One process should lead, term after term: election.Election.Run.
//   - Know who leads, in a process that is no candidate: election.NewReader.
//   - Writes to etcd must fail once another client holds the lock: fencing.FencedWriter.
//   - The same for other stores: sqlfence.Guard for a database, sqlfence.Marks in your own transaction, httpfence and
//     grpcfence for a service.
//   - An early warning before a lock is lost: session.Session.Subscribe.
//   - Contend with etcd's concurrency.Mutex, "etcdctl lock" or v3lock: locker.NewMutexAt.
//
// # Errors
//
// Decide with errors.Is on the sentinels: [ErrLost] (stop; acquire again), [ErrSuspended] (pause side effects and check
// again), [ErrClosed], [ErrOutcomeUnknown] (read back before repeating). [*LostError] says what was lost and why.
// [*ArgumentError] and [*NameError] report bad input; nothing was sent.
//
// # Where to start
//
//	go run ./examples/quickstart
//
// pauses a lock's holder for longer than its lease, and shows what becomes of its writes. README.md has the
// guarantees in short; DESIGN.md says how they are kept.
package holdfast
