// Package queuemodel searches every interleaving of the queue's algorithm for
// one that breaks a rule. The algorithm is changed here first, and in the code
// only when the search finds nothing. It is also the shortest way to learn the
// algorithm: each file is one part of it, without retries, contexts and RPCs.
//
//	attempt.go   from the enqueue to the hold
//	judge.go     the predecessor has gone: was it a release, or was its lease revoked?
//	leave.go     how an entry goes that may not just be deleted, and hand-off
//	sweeper.go   what attempts leave in doubt that ended without an answer
//	session.go   leases: revoked, given up, granted anew; the session key; Close
//	etcd.go      what etcd does, and the enqueue's Txn; copies.go the network
//	check.go     what must hold in each state
//	scenario.go  what may go wrong, and the rules that can be broken on purpose
//	state.go, reduce.go, search.go   the search itself
//
// # The problem
//
// etcd may revoke a lease that was renewed: a leader that was stopped and
// continues proposes it. The entry of a holder vanishes, and for a moment the
// holder, running and connected, does not know. The waiter behind must not hold
// in that moment. So each lease has a session key, which etcd deletes at the
// same revision as the lease's entries. A waiter whose predecessor's entry went
// together with its session key waits for the lock delay before it holds.
//
// The session key is also the gate of each enqueue. A request that was not
// answered may be carried out at any later time. The enqueue compares the key's
// mod revision; once the session has put the key again, no copy sent before can
// do anything.
//
// # What is modelled
//
// A few sessions, each with one or two leases in turn; attempts for exclusive
// entries of one or two locks, with a line of goroutines behind. Each of these
// is a step of its own, and may happen at any time: an enqueue is sent, carried
// out and answered; it is sent again, and several copies are under way; a copy
// or an answer is lost; the gate refuses; a read finds what an earlier copy did;
// the predecessor's deletion is judged with its revision known, unknown, or
// compacted; an attempt holds, releases, gives up, or hands on its place or its
// lock; the sweeper puts the key, reads, and deletes; etcd revokes a lease; its
// session is told, and is granted another; a session gives up a lease that etcd
// keeps; a session key is deleted by hand and put again, or put by a late copy;
// a session closes.
//
// Time is an order, nothing else: a lock delay is over when each session whose
// lease was revoked before it began has been told. That this holds in seconds
// is for the session's watch and its audit to see to.
//
// # What must hold, in each state
//
//   - Order: an attempt that holds by etcd's record has the oldest entry that
//     stands. So no two hold by the record, and all hold in order of create revision.
//   - Early: no attempt holds by the record while another, revoked, believes
//     that it holds. (An attempt that queued after that revoke is excepted, see below.)
//   - Orphan: each entry on a living lease is known to an attempt or to the sweeper.
//   - Stuck: each attempt can end, each entry go, and each sweeper become idle.
//   - Livelock: no cycle of states in which the gate refuses an attempt.
//   - Needless: where no lease is revoked or given up, no key deleted, and the
//     watch tells the revision, nothing delays.
//
// TestEachBrokenRuleIsNoticed breaks each rule of the algorithm once and
// expects one of these.
//
// # What is left out, knowingly
//
//   - A newcomer: an attempt that queues after a revoke finds the queue free and
//     holds at once, perhaps before the revoked holder is told. Nothing stands any
//     more that it could see. Only the session's watch makes this short. The tests
//     log in how many states it happens.
//   - Entries deleted by hand. A holder is told by its audit.
//   - One Txn and the reading of its answer are one step, except for the enqueue
//     and for a grant: an attempt may hold although its entry has gone since.
//   - The unanswered hand-off of an entry that never held; it is modelled as answered.
//   - A key that is used again for a later entry: here each entry has its own.
//   - Txns that go together in a group. Those about one queue must never do.
//   - A write that etcd's client repeats by itself after its answer was read.
//     Nothing prevents it; the session finds such entries later by a list.
//   - Other modes: readers, permits, sets of locks. conflicts in etcd.go is where
//     they begin.
package queuemodel
