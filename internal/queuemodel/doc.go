// Package queuemodel searches every interleaving of the queue's algorithm for one that breaks
// a rule. The algorithm is changed here first, and in internal/queue only when the search
// finds nothing. It is also the shortest way to learn the algorithm: each file is one part of
// it, without retries, contexts and RPCs.
//
//	attempt.go   from the enqueue to the hold
//	judge.go     the entry ahead is gone: was it released, or was its lease revoked?
//	remove.go    when an entry may be deleted, and hand-off
//	minhold.go   names that stay taken after their release
//	sweeper.go   what unanswered requests of ended attempts have put
//	session.go   leases: revoked, given up, granted again; the session key; Close
//	etcd.go      what etcd does, and the Txn that puts an entry
//	network.go   copies of that Txn
//	check.go     what must hold in each state
//	scenario.go  what may go wrong, and the rules that can be broken on purpose
//	state.go, reduce.go, search.go   the search itself
//
// # The problem
//
// etcd may revoke a lease that was renewed: a leader that was stopped and continues proposes
// it. The entry of a holder vanishes, and for a moment the holder, running and connected, does
// not know. The waiter behind must not hold in that moment. So each lease has a session key,
// which etcd deletes at the same revision as the lease's entries. A waiter whose entry ahead
// went together with its session key waits for the lock delay before it holds.
//
// The session key is also the gate of each enqueue. A request that was not answered may be
// carried out at any later time. The enqueue compares the key's mod revision. Once the session
// has put the key again, no copy that was sent before can do anything.
//
// # What is modelled
//
// A few sessions, each with one or two leases in turn; attempts for exclusive or shared entries of one or
// two locks, with a line of goroutines behind. Each of these is a separate step and may happen at
// any time:
//
//   - An enqueue is sent, carried out and answered, or sent again, so that several copies are in
//     flight. A copy or a reply is lost. The gate refuses. A read finds what an earlier copy did.
//   - The deletion of the entry ahead is judged: its revision is known, unknown, or compacted.
//   - An attempt holds, releases, gives up, or hands off its place or its lock.
//   - With MinHold, the entry of a hold that was released is moved to a lease of its own, by a
//     request that may go unanswered. It expires with that lease, or is removed.
//   - The sweeper puts the key, reads, and deletes.
//   - etcd revokes a lease. Its session is told, and is granted another.
//   - An administrator asks a holder to let go, and moves its entry to another lease, which ends.
//   - A session gives up a lease that etcd keeps, or closes.
//   - A session key is deleted by hand and put again, or put by a late copy.
//
// Time is an order and nothing else: a lock delay is over when each session whose lease was
// revoked before it began has been told. That this is true in seconds is up to the session's watch
// and to the poller of internal/queue.
//
// # What must hold in each state
//
//   - Order: an attempt that holds by etcd's record has the oldest entry that exists. So no two
//     hold by the record, and all hold in order of create revision.
//   - Early: no attempt holds by the record while another, revoked, believes that it holds. (An
//     attempt that queued after that revocation is excepted, see below.)
//   - Kept: a session deletes no entry that is kept by MinHold before its time is over.
//   - Orphan: each entry on a live lease is known to an attempt or to the sweeper.
//   - Stuck: each attempt can end, each entry be deleted, and each sweeper become idle.
//   - Livelock: there is no cycle of states in which the gate refuses an attempt.
//   - Needless: if no lease is revoked or given up, no key is deleted, and the watch tells the
//     revision, there is no lock delay.
//
// TestEachBrokenRuleIsNoticed breaks each rule of the algorithm once and expects one of these.
//
// # What is left out
//
//   - A newcomer: an attempt that queues after a revocation finds the queue free and holds at once,
//     perhaps before the revoked holder is told. Nothing is left that it could see. Only the
//     session's watch makes this time short. The tests log in how many states it happens.
//   - Entries deleted by hand. Their holders are told by the poller.
//   - One Txn and the reading of its reply are one step, except for the enqueue and for a grant: an
//     attempt may hold although its entry is gone by then.
//   - The unanswered hand-off of an entry that never held; it is modelled as answered.
//   - A key that is used again for a later entry: here each entry has its own.
//   - How long MinHold lasts: its end may come at any time.
//   - Txns in a batch. Two about one queue must never be in one.
//   - A write that etcd's client itself repeats after its reply was read. Nothing prevents it;
//     the orphan scanner of internal/queue finds such entries later.
//   - Permits and sets of locks. exclude in etcd.go is where they would begin.
package queuemodel
