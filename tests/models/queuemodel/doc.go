// Package queuemodel searches every interleaving of the queue's algorithm for one that breaks a rule. The algorithm is
// changed here first, and in internal/queue only when the search finds nothing. It is also the shortest way to learn
// the algorithm: each file is one part of it, without retries, contexts and RPCs.
//
//	txns.go      the Txns: put, hand-off, release, clear, move, downgrade
//	look.go      what a look shows, and when the delay for a dead claim is over
//	attempt.go   an attempt, from its put to its end
//	session.go   leases: lost, granted again, given up; the session key; Close
//	network.go   copies of requests; administrators
//	check.go     what must hold in each state
//	scenario.go  what may go wrong, and the rules that can be broken on purpose
//	model.go     the steps from a state; state.go: what a state is, and which are equal
//	trace.go     runs of internal/queue, compared with the model step by step
//	follow.go    records of simulations and real clusters, compared entry by entry; modeltrace reads them
//
// # The problem
//
// etcd may revoke a lease that was renewed: a leader that was stopped and continues proposes it. The entry of a holder
// vanishes, and for a moment the holder, running and connected, does not know. No other one may hold in that moment.
// So each entry E has a claim C, on a lease of its own, L2, which ends minutes after that of the entry, L1. A release
// deletes both. A claim without its entry is dead: it tells that nothing was released.
//
//	revision 10  A puts E and C, and holds
//	revision 15  A's lease is revoked; its claim stands
//	revision 16  B puts, sees the dead claim, and waits until A has been told
//	revision 20  B deletes the claim, and holds
//
// B judges by what stands, and never by what has happened.
//
// # What is modelled
//
// Three sessions, each with one or two pairs of leases in turn, and four attempts: writers, readers, TryLock, sets,
// locks that can be downgraded, lines of goroutines, MinHold, etcd's own clients. Each of these is a separate step and
// may happen at any time:
//
//   - A Txn is carried out and answered, or without a reply, or by a copy at any later moment.
//   - etcd revokes L1 or L2 early. A session is told of a loss, gives a lease up by its clock, comes back with others,
//     or closes. A process dies.
//   - An entry or a session key is deleted by hand. An administrator writes into an entry, or moves it, also while it
//     waits for a delay: then it keeps its create revision, and its owner must not hold by it.
//   - An attempt gives up, whatever stands ahead. A later one of its session counts a delay from the session's first
//     sight of the dead claim. A claim that was never held by costs no delay: something that excludes it stood ahead.
//   - A reply that shows a hold is read at any later time.
//
// Time is an order and nothing else. LockDelay is over when the session whose key had gone has been told; ToldWithin
// when the holder has polled. That this is true in seconds is up to the session's watch and to its poll: see
// quietmodel.
//
// # What must hold in each state
//
//   - exclusion: no two hold that exclude each other, by what they have been told;
//   - order: none holds before an older entry that stands and excludes its own;
//   - needless: where nothing has gone wrong, none delays;
//   - stuck: all attempts can end and all keys be deleted, by steps that no fault and no caller has to make.
//
// TestEachBrokenRuleIsNoticed breaks each rule of the algorithm once and expects one of these.
// TestEachExceptionIsFound has the faults after which two may hold; docs/guarantees.md lists them.
//
// # Traces
//
// The search shows that the algorithm is right, not that internal/queue is this algorithm. So runs of it are compared
// with the model: three processes lock one Mutex, or one RWMutex, on etcdfake, in virtual time, while requests are
// lost and late, watches break, and leases are revoked. A run is a list of events: each revision of the store; each
// put that a process sends; each loss of a lease; and what only the queue knows and says through lease.Observe.
//
// Each step of the model is seen as one of these events, or nothing tells of it: a caller gives up. The check keeps
// all states of the model that agree with the events so far. An event that is a step in none of them is refused, and
// printed with all events before it and the steps that the model has instead. So code with a wrong rule is refused
// even where no two hold at once: TestForgedRunsAreRefused has such runs, and tests/saboteurs patches that take a rule
// out of the code.
//
//	go test ./tests/models/queuemodel -run Runs -model.traces 1000 -model.seed 5000
//
// Runs showed that the code does what the model did not have: an attempt that never learned its revision removes its
// claim before its session is told of the loss. The model has it now.
//
// # Records
//
// The schedules of tests/simulation, and the processes of tests/campaign on real clusters, have all kinds and faults.
// There each entry is followed by itself (Follow): what becomes of it depends on the entries and claims ahead and on
// its own. So the model has one attempt, and what others change in the store happens to it. Each look and each hold
// comes where etcd has carried out the read that it follows from. So no order between processes is needed, and no
// clock.
//
// Not seen this way: how long a delay takes, and whether a former holder has been told, which the oracle judges by
// clocks; that all entries of a set stand when it holds; an entry without a claim, or behind more than thirteen
// others.
//
// # What is left out
//
//   - Seconds, quorums, members that lag: quietmodel. Permits: semmodel.
//   - How many claims a look reads and a clear deletes: here all at once. Txns in a batch.
//   - A write that a replaced KV repeats after its reply was read: each of its puts counts as one with a copy that has
//     no reply.
package queuemodel
