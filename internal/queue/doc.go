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
// One Txn puts an entry, which is on the session's lease, and a claim, which is on a lease that outlives that by
// minutes. Both have one create revision, and both are deleted together. So what stands now tells all:
//
//	rev 10  A puts entry and claim, and holds
//	rev 12  B puts, and watches A's entry
//	rev 15  A's lease is revoked: its entry and session key are gone, its claim stands
//	        B looks: no entry is ahead, and A's claim is dead. B waits for the lock delay; by then A has been told
//	rev 16  C comes, sees the claim and B's entry, and waits for B
//	rev 17  B deletes A's claim, comparing its own entry, and holds
//
// No rule asks for the past.
//
// # Acquire
//
// Goroutines of one session that want the same name wait in a line in memory. Only the head of the line has an entry in
// etcd. The Txn that puts it reads whether an entry or a claim stands before it. If none does, the head holds: one
// round trip. Otherwise:
//
//   - An entry is ahead: the attempt watches the nearest one, so that a release wakes one waiter, and looks when it has
//     gone. A look is one flat Txn that reads the present.
//   - No entry is ahead, and claims are: their delays run side by side. Then one Txn deletes the claims.
//   - Neither: the attempt holds, if all its entries stand as this session has written them.
//
// Nothing comes ahead of an entry, so what a look has shown to be free stays free.
//
// # Release
//
// One Txn deletes the entry and its claim, and compares the entry's create revision. If another goroutine waits in the
// line, the same Txn puts that goroutine's entry, at the back of the queue. An attempt that gives up
// leaves in the same way, at any time.
//
// # Several queues
//
// An attempt of a Set has an entry in each of several queues, put by one Txn, so with one create revision. It waits for
// one queue after the other. Each look reads that all its entries stand, and what is ahead in as many queues as one Txn
// has room for. If an entry was deleted or written to, all leave, and the attempt queues again. Each entry has a hold;
// the holds share one life, so they end together.
//
// # Requests that are not answered
//
// A request without a reply may have been carried out, or may be at any later time. The put of an entry is sent again
// until it is answered, and compares the session key. Package leftovers has the keys of entries, and removes what
// copies of a put may leave when their attempt has ended.
//
// # Where to begin
//
// Set.Acquire in acquire.go is the whole way of a lock, from the call to the hold: the line, the put, the wait. A free
// lock goes on through ticket.go, attempt.go, put.go, entry.go, grant.go and remove.go; TryLock adds try.go. What
// becomes of a Grant while it is held is not known here: see package hold. A waiter adds wait.go and look.go; after a
// crash clear.go and sights.go; a line in memory, lines.go and handoff.go; semaphores, semaphore.go and permit.go.
// leftovers.go is what package leftovers asks of an entry. Package ahead has the operations that read entries and
// claims, package watching the wait for a change, calls.go of package lease how long a call lasts.
//
// DESIGN.md at the root of the module has the reasons. tests/models/queuemodel and
// tests/models/semmodel are models of this algorithm that are searched for mistakes.
package queue
