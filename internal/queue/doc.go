// Package queue is the one algorithm of locks and elections: each contender has an entry in etcd, and the entry with
// the smallest create revision holds. Readers of an RWMutex hold together, if no writer is ahead of them.
//
//	line in memory             etcd, under NAME/@/
//	goroutine 3  ─┐
//	goroutine 2  ─┼─ wait      694d…-x7Q (rev 120)   another process, holds
//	goroutine 1  ─┴─ head ──▶  5e1a…-b2K (rev 131)   watches the one above
//
// # Entries and claims
//
// One Txn puts an entry on the session's lease, and a claim on a second lease, which lives for minutes longer. Both
// have one create revision, and both are deleted together. So what stands now tells all, and no rule asks for the past:
//
//	rev 10  A puts entry and claim, and holds
//	rev 12  B puts, and watches A's entry
//	rev 15  A's lease is revoked: its entry and session key are gone, its claim stands
//	        B looks: no entry is ahead, and A's claim is dead. B waits for the lock delay; by then A has been told
//	rev 16  C comes, sees the claim and B's entry, and waits for B
//	rev 17  B deletes A's claim, comparing its own entry, and holds
//
// # Acquire
//
// Goroutines of one session wait for a name in a line in memory. Only the head of the line has an entry in etcd. The
// Txn for it also reads whether an entry or a claim stands before it. If none does, the head holds: one round trip.
// Otherwise:
//
//   - An entry is ahead: the attempt watches the nearest one, so a release wakes one waiter, and looks when it has
//     gone. A look is one flat Txn. It reads the present.
//   - No entry is ahead, but claims are: their delays run side by side. Then one Txn deletes the claims.
//   - Neither: the attempt holds, if all its entries stand as this session has written them.
//
// Nothing comes ahead of an entry, so what a look has shown to be free stays free.
//
// # Release
//
// One Txn deletes the entry and its claim, and compares the entry's create revision. If another goroutine waits in the
// line, the same Txn puts that goroutine's entry, at the back of the queue. An attempt leaves in the same way, at any
// time.
//
// # Several queues
//
// An attempt of a Set has an entry in each of several queues, put by one Txn, so with one create revision. It waits for
// one queue after the other. If an entry was deleted or written to, all leave, and the attempt queues again.
//
// # Requests without a reply
//
// A request without a reply may have been carried out, or may be at any later time. The put of an entry is sent again
// until it is answered, and compares the session key. Package leftovers has the keys of entries, and removes what late
// copies of a put leave.
//
// # Where to begin
//
// Set.Acquire in acquire.go is the whole way of a lock, from the call to the hold. A free lock goes on through line.go,
// entry.go and put.go; its release is in remove.go. A waiter adds wait.go, and delay.go after a crash; a semaphore adds
// permit.go and semaphore.go. place.go is for people; attach.go goes on with a hold that was detached. Package hold has
// what becomes of a Grant, package watching the wait for a change, and calls.go of package lease how long a call lasts.
//
// DESIGN.md at the root of the module has the reasons. tests/models/queuemodel and tests/models/semmodel search this
// algorithm for mistakes.
package queue
