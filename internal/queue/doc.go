// Package queue is the one algorithm of locks and elections: each contender has an entry in etcd, and the entry with
// the smallest create revision holds. Readers of an RWMutex that no writer is ahead of hold together.
//
//	line in memory             etcd, under NAME/@/
//	goroutine 3  ─┐
//	goroutine 2  ─┼─ wait      694d…-x7Q (rev 120)   another process, holds
//	goroutine 1  ─┴─ head ──▶  5e1a…-b2K (rev 131)   watches the one above
//
// # Acquire
//
// Goroutines of one session that want the same name wait in a line in memory. Only the head of the line has an entry in
// etcd. One Txn puts it, with the session's lease, and reads the youngest entry that stood before it. If there is none,
// the queue was free and the head holds: one round trip.
//
// Otherwise it watches that one entry, so that a release wakes one waiter. When the
// entry ahead is gone, the waiter finds out how it went:
//
//   - It was deleted, and the session key of its lease exists: a release, or a waiter
//     that gave up. The waiter holds, or waits for the entry that is ahead now.
//   - It went together with that session key: its lease has ended. The lease expired,
//     or etcd revoked it although it was renewed, and then its holder may not have
//     been told yet. The waiter waits for the lock delay before it holds, and reads at
//     its end: without a quorum no holder is told, and no read answered.
//   - It is not known when it went, or others held beside it, and the session key of one
//     of them is gone by now. The waiter finds the last revision at which that key stood.
//     If no entry of that session was ahead then, or none that could hold, there is no
//     delay.
//
// # Release
//
// One Txn deletes the entry if its create revision is the one that is meant. If another goroutine waits in the line,
// the same Txn puts that goroutine's entry, at the back of the queue. An entry that never held may be deleted only
// while the entry ahead of it stands: otherwise the deletion would hide from the entry behind that a lease was revoked.
//
// # Several queues
//
// An attempt of a Set has an entry in each of several queues, put by one Txn, so with one create revision. Each is
// judged, and removed, by what stands in its own queue. The attempt waits for one queue after the other, as what is
// free ahead of an entry stays free, and every judgment reads that all its entries stand. If one was deleted or written
// to, all leave, and it queues again. There is a hold for each entry; they share one life, so they end together.
//
// # Requests that are not answered
//
// A request without a reply may have been carried out, or may be at any later time. The put of an entry is sent again
// until it is answered, and compares the session key. Package leftovers has the keys of entries, and removes what
// copies of a put may leave when their attempt has ended.
//
// # Where to begin
//
// A free lock takes this path, in order: acquire.go, ticket.go, attempt.go, entry.go, put.go, grant.go, remove.go;
// without a wait, try.go. What becomes of a Grant while it is held is not known here: see package hold. A waiter
// adds wait.go and judge.go, and packages awaiting and inquest; a line in memory, package lines and handoff.go; readers
// beside writers, reads.Sessions; semaphores, semaphore.go, permit.go and permitwait.go. leftovers.go is what package
// leftovers asks of an entry. Package reads has the operations that read entries, package calls how long a call lasts.
//
// DESIGN.md at the root of the module has the reasons. tests/models/queuemodel and
// tests/models/semmodel are models of this algorithm that are searched for mistakes.
package queue
