// Package holdfast is the landing page of an SDK for locks, leader election and
// fencing in Go services that already run etcd. There is no server of its own
// and no state outside etcd.
//
// A lock that is held over a network can be lost while its holder is paused, or
// cut off, or slow. holdfast does two things about it: it tells a holder before
// another client can hold the lock, and it gives each holder a token that makes
// the late writes of one that was paused, and missed that, fail.
//
// # What is where
//
//   - [github.com/holdfast-go/holdfast/session] keeps one lease alive, says
//     whether it can be trusted now, tells when it is lost, and gets another.
//     One Session per process is enough for any number of locks.
//   - [github.com/holdfast-go/holdfast/locker] is the locks. Mutex is a name,
//     Lock one acquisition of it.
//   - [github.com/holdfast-go/holdfast/election] is leader election. Election is
//     a name, Term one leadership; observers, also without a session (Reader),
//     and handlers for health probes.
//   - [github.com/holdfast-go/holdfast/fencing] is the token, and FencedWriter,
//     which writes to etcd only while its holder is the holder. Its sqlfence,
//     httpfence and grpcfence are the comparing side for databases and services.
//   - [github.com/holdfast-go/holdfast/backoff] is how everything here retries,
//     and what an error of etcd says about a request.
//   - [github.com/holdfast-go/holdfast/etcdtest] is an etcd inside a test, with
//     faults, for the tests of this module and for yours.
//   - [github.com/holdfast-go/holdfast/etcdfake] is an etcd in memory, for unit
//     tests and simulations in virtual time.
//
// # Which one do I need
//
//   - At most one process should do something now: locker.Mutex.Do.
//   - The same, or skip if another client holds it or waits for it:
//     locker.Mutex.TryDo.
//   - To hold a lock across functions: locker.Mutex.Lock and locker.Lock.Unlock.
//   - One process should lead, term after term: election.Election.Run.
//   - To know who leads, in a process that is no candidate: election.NewReader.
//   - What it writes to etcd must not come from a holder that has been replaced:
//     fencing.FencedWriter.
//   - What it writes elsewhere must not either: sqlfence.Guard for a database,
//     sqlfence.Marks in a transaction of your own, httpfence and grpcfence for a
//     service.
//   - An early warning before a lock is lost: session.Session.Subscribe.
//   - To contend with etcd's concurrency.Mutex, "etcdctl lock" or v3lock:
//     locker.NewMutexAt.
//
// # Where to start
//
// See the example of this package, and
//
//	go run ./examples/quickstart
//
// which stops a lock's holder for longer than its lease and shows what becomes
// of its writes. README.md has the guarantees in short, DESIGN.md how they are
// kept.
package holdfast
