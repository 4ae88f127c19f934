// Package semmodel searches every interleaving of the semaphore's algorithm for one that breaks a rule. The algorithm
// is changed here first, and in internal/queue only when the search finds nothing.
//
// Read look.go and attempt.go for an attempt, etcd.go for the Txns, session.go for leases and what others do by hand,
// model.go for scenarios, check.go for what must hold, and follow.go for runs of the code.
//
// # The algorithm
//
// A permit E is got at once. A caller that does not fit has a turn T in the queue instead. The front, the oldest turn
// that waits, looks, and marks as many turns as fit in one Txn: a turn that was put a second time is a permit. E and T
// are on a session's first lease, L1. Each has a claim C on its second lease, L2, which is put, marked and deleted with
// it. So a claim that stands alone says that its E or T was not released:
//
//	rev 10: A puts E · rev 11: B puts T · rev 15: A's L1 is revoked
//	→ B finds A's claim, and no E: it waits for the delay, deletes the claim, and marks its own turn.
//
// Each E, each marked T and each dead claim of a permit counts. A dead claim without a mark is of one that never held:
// no delay is due.
//
//   - A put compares that no T is unmarked. While one is, no E joins ahead of it, and none younger is marked. So an
//     admission compares the limit and each T, and a copy of it does no harm whenever it arrives, and from any sender.
//   - E holds if all that stood ahead of it, and its weight, fit into the limit of that revision. If the reply to its
//     put was lost, what stands ahead now says so, and only if the limit was not changed since. If only dead claims are
//     in the way, it waits for their delays. Otherwise a Txn puts T and another claim in place of both; a TryAcquire
//     leaves instead.
//   - A waiter watches the nearest T ahead, until that is marked or gone, and looks. It may be marked itself by then.
//   - The front watches permits and the limit. It reads no more turns than one Txn marks, and only claims that are
//     older than its own T: the claim of a turn that was not read would look dead.
//   - A T that is found marked was admitted, and is not judged again. An attempt that gives up gives its mark back with
//     its keys.
//
// # What may happen
//
// The faults in model.go, at any time. An administrator's removal puts a permit on a lease of its own, without a claim,
// until its holder has been told. A copy of a request arrives at any later time, also when its keys are used again by
// another attempt. Time is an order and nothing else.
//
// # What must hold
//
//   - Limit: at each admission, what is held by etcd's record, and by those who do not know yet that their key is gone,
//     fits into the limit of that revision. After the limit was lowered, those who hold go on.
//   - Order: no turn is marked before an older one.
//   - Missed: no attempt that could hold, or never can, waits while nothing happens that tells it.
//   - Stuck: each attempt ends, and each key is deleted, by what happens by itself.
//   - Needless: there is no delay unless a lease was revoked, a key deleted by hand, or a process crashed.
//
// Where too many may hold, the tests say so: exceptions in scenarios_test.go.
//
// Not modeled: seconds; more than four attempts; reads of a put that are cut short; MinHold, whose move is that of a
// removal.
package semmodel
