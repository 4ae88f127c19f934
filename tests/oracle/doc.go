// Package oracle judges what the users of locks have observed by the history of etcd's store.
//
// A Record is what happened: every change of the store, every hold as its process saw it, and every fault. The
// simulation writes one for each schedule, in virtual time, the campaign for each round on a real cluster. Judge
// compares the holds with the history, by these rules:
//
//   - a hold has its entries, all put at one revision, and the entries of one attempt are put together (entries.go)
//   - it was granted when nothing that excludes it was ahead, and not before that was so (grant.go)
//   - its holder is told before its lease expires, and within six seconds if its entry is removed by force (told.go)
//   - two that exclude each other are not held together, and are held in the order of their entries (pair.go)
//   - permits do not exceed the limit, when they are admitted and while they are held (permit.go)
//   - entries at the front of their queues soon have a holder, or are removed (front.go)
//   - a confirmed release has removed the entries, or keeps the name taken for MinHold; it costs the next no delay
//     (release.go)
//   - a fenced write is made while its holder holds (write.go)
//
// Where docs/guarantees.md makes no promise, as for a process that is cut off, a rule looks away, and counts that.
package oracle
