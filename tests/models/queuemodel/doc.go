// Package queuemodel searches every interleaving of the queue's algorithm for one that breaks
// a rule. The algorithm is changed here first, and in internal/queue only when the search
// finds nothing. It is also the shortest way to learn the algorithm: each file is one part of
// it, without retries, contexts and RPCs.
//
//	enqueue.go   an attempt queues: it puts its entries and reads the reply
//	attempt.go   from its places in the queues to the hold, and to its end
//	set.go       attempts with several entries; one of them is gone; downgrade
//	judge.go     the entry ahead is gone: was it released, or was its lease revoked?
//	remove.go    when an entry may be deleted, and hand-off
//	minhold.go   names that stay taken after their release
//	removal.go   forced removal
//	sweeper.go   what unanswered requests of ended attempts have put
//	session.go   leases: revoked, given up, granted again; the session key; Close
//	etcd.go      what etcd does, and the Txn that puts the entries
//	network.go   copies of that Txn
//	check.go     what must hold in each state
//	scenario.go  what may go wrong, and the rules that can be broken on purpose
//	model.go     the steps from a state; state.go, reduce.go: what a state is, and which are equal
//	trace.go     runs of internal/queue, compared with the model step by step
//	follow.go    records of simulations and real clusters, compared entry by entry; modeltrace reads them
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
// A few sessions, each with one or two leases in turn; attempts with an entry, or with a set of two or three that one
// Txn puts, each exclusive or shared; and a line of goroutines behind. Sets are what locker.Set, a tree lock, and a
// lock that can be downgraded put. Each of these is a separate step and may happen at any time:
//
//   - An enqueue is sent, carried out and answered, or sent again, so that several copies are in
//     flight, one after or beside the other. A copy or a reply is lost. The gate refuses. A read finds what an earlier
//     copy did.
//   - The deletion of the entry ahead is judged: its revision is known, unknown, or compacted. A set looks at one queue
//     after the other, so in the later ones the revision may be unknown, though no watch has failed. Of a session whose
//     key is gone, the judge finds when that was, and what stood then: a search of history, which is one step.
//   - An attempt holds, releases, gives up, or hands off its place or its lock. A set is released by one Txn, and
//     leaves its queues one by one. A holder of a lock in both modes lets the exclusive entry go.
//   - With MinHold, the entry of a hold that was released is moved to a lease of its own, by a
//     request that may go unanswered. It expires with that lease, or is removed.
//   - The sweeper puts the key, reads, and deletes.
//   - etcd revokes a lease. Its session is told, and is granted another.
//   - An administrator asks a holder to let go, and moves its entry to another lease, which ends. The entry may also be
//     of an attempt that does not hold yet.
//   - An entry of a waiting attempt is deleted by hand. What is left of its set is removed, while the set queues anew.
//   - A session gives up a lease that etcd keeps, or closes.
//   - A session key is deleted by hand and put again, or put by a late copy.
//
// Time is an order and nothing else: a lock delay is over when each session whose lease was
// revoked before it began has been told. That this is true in seconds is up to the session's watch
// and to the poller of internal/queue.
//
// # What must hold in each state
//
//   - Order: while an attempt holds by etcd's record, no older entry stands that excludes one of its own. So no two
//     that exclude each other hold by the record, and they hold in order of create revision.
//   - Exclusion: no two hold by the record whose entries exclude each other and have one create revision.
//   - Early: no attempt holds by the record while another, revoked, believes that it holds. (An
//     attempt that queued after that revocation is excepted, see below.)
//   - Kept: a session deletes no entry that is kept by MinHold before its time is over.
//   - Orphan: each entry on a live lease is known to an attempt or to the sweeper.
//   - Stuck: each attempt can end, each entry be deleted, and each sweeper become idle. So sets do not wait for each
//     other in a circle.
//   - Livelock: there is no cycle of states in which the gate refuses an attempt.
//   - Needless: if no lease is revoked or given up, and no key or entry is deleted, there is no lock delay, whether or
//     not the watch tells the revision, and whichever sessions close.
//
// TestEachBrokenRuleIsNoticed breaks each rule of the algorithm once and expects one of these.
//
// # Traces
//
// The search shows that the algorithm is right, not that internal/queue is this algorithm. So runs of it are compared
// with the model: three processes lock one Mutex, or one RWMutex, on etcdfake, in virtual time, while requests are
// lost and late, watches break, and leases are revoked. A run is a list of events: each revision of the store; each put
// of an entry that a process sends; each loss of a lease; and what only the queue knows and says through queue.Observe.
// It knows what is ahead, and whether a lock delay begins; it has waited for that delay; it holds.
//
// Each step of the model is seen as one of these events, or nothing tells of it: a copy is lost, a caller gives up. The
// check keeps all states of the model that agree with the events so far. An event that is a step in none of them is
// refused, and printed with all events before it and the steps that the model has instead. At the end everything must
// be removed, and nothing be left for the sweeper.
//
// So code with a wrong rule is refused even where no two hold at once: TestForgedRunsAreRefused has such runs, and
// tests/saboteurs has four patches that take a rule out of the code and are refused.
//
//	go test ./tests/models/queuemodel -run Runs -model.traces 1000 -model.seed 5000
//
// Runs showed four things that the code does and the model did not have: it sends a copy of an enqueue beside the
// first; it sends one again with the gate that it knows by then; its session may read late that the sweeper has put the
// session key; and an attempt that had begun before its session lost a lease delays, also if it had sent nothing. The
// model has them now, and they break no rule.
//
// Not in these runs: leases that a session gives up by its own clock, Close, lines of goroutines, sets, MinHold,
// administrators, session keys and entries that are deleted by hand, compaction. Nor is a run followed to its end with
// which more than modeltrace.MostStates states of the model agree; the test fails if these are more than a tenth.
//
// # Records
//
// The schedules of tests/simulation, and the processes of tests/campaign on real clusters, have all of these. There
// each entry is followed by itself (Follow). What becomes of an entry depends on etcd's store alone: on the entries
// ahead of it, and on session keys. So the model has one attempt, that of the entry, and what others change in the
// store happens to it. Each step of the entry comes where etcd has carried out the read that it follows from. So no
// order between the steps of several processes is needed, and no clock; and entries of a set, of a line, of an election
// and of a shard are followed like any others. Refused are, among others, a put that etcd carries out although the
// session key has moved; an entry that leaves when it may not; a lock delay that is missing, or needless.
//
//	go test ./tests/simulation
//	go run ./tests/campaign -duration 5m
//
// Records showed two things. A put that was refused for a reason that the attempt could not read was taken for
// answered; the code is changed. An inquest that ended because its own entry was gone had begun a lock delay and did
// not say so.
//
// Not seen this way:
//
//   - How long anything takes, and what a process knows: a lock delay that is too short, a former holder who has been
//     told "long ago" (LongTold), a call whose first put came after a loss and that need not delay. The oracle judges
//     what holders see, by clocks.
//   - What an attempt does with several entries at once: that all stand when it holds.
//   - A hold: its release may come at any time. MinHold and the move by an administrator end the following of an entry.
//   - An entry that takes the place of one in its line that gave up, where that had entries of the other mode ahead;
//     an entry behind more than thirteen others, or those of more than six other sessions. Such entries are
//     counted: fewer than one of a hundred on clusters.
//   - Permits: package semmodel follows them.
//
// # What is left out
//
//   - A newcomer: an attempt that queues after a revocation. Nothing is left that it could see, so it holds as soon as
//     what it does see has gone, perhaps before the revoked holder is told: at once, or when another newcomer lets go,
//     another reader, or who holds in another queue of its set. A waiter that delays for the revoked holder holds it
//     back. So in the queue of a Mutex none holds early that queued behind one who was there before the revocation;
//     TestNewcomerBehindOneThatWaitedHoldsEarlyOnlyWhereSeveralHold counts the states. Only the session's watch makes
//     this time short.
//   - Entries of holders deleted by hand, and those of waiters while a revoked holder is not told. Only the poller
//     tells of the first, and nothing of the others.
//   - One Txn and the reading of its reply are one step, except for the enqueue and for a grant: an
//     attempt may hold although its entry is gone by then.
//   - The unanswered hand-off of an entry that never held; it is modelled as answered.
//   - A key that is used again for a later entry: here each entry has its own. That a watch on a member that lags also
//     tells of an earlier entry at the key is a broken rule only: who knows which entry an event is about does nothing.
//   - How long MinHold lasts: its end may come at any time.
//   - Txns in a batch. Two about one queue must never be in one, as a broken rule shows.
//   - A write that etcd's client itself repeats after its reply was read. Nothing prevents it;
//     the orphan scanner of internal/queue finds such entries later.
//   - Permits. exclude in etcd.go is where they would begin.
package queuemodel
