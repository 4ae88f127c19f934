// Package fencing makes the writes of a client that has lost its lock fail, even if the client does
// not know about the loss yet: the receiver compares the [holdfast.Token] of each write with the largest one it
// has seen, and refuses smaller ones.
//
// This package has what locks and guards share. A lock or a term is a [Holder], which the context of its work
// carries ([FromContext]). What it presents is a [Claim], of a name and a token ([Present]). A guard is a [Store]; it
// keeps the largest token as the mark of its resource, and judges by [Claim.CheckMark]. The guards are in packages
// below this one, and a program links those that it imports:
//
//   - etcdfence writes to the etcd of the lock, and keeps marks in that or another etcd.
//   - sqlfence guards a database.
//   - memfence guards what a single process writes.
//   - httpfence and grpcfence carry name and token to one of these in another process.
//   - fencetest tests a guard of your own.
//
// docs/fencing.md says which to take, and what to do after etcd was restored from a backup (etcdfence.BumpEpoch).
//
// # Guarantees
//
//   - Of two exclusive holders of one name, the later one has the larger token. The names of two namespaces, two
//     clusters or two kinds, such as a lock and an election, are different names, and no claim tells them apart.
//   - What a Store refuses has no effect. What it admits is not overtaken by a larger token before its
//     effect is over.
//   - Errors of this package mean that nothing was done; after holdfast.ErrOutcomeUnknown only reading
//     back can tell.
//
// # Not guaranteed
//
//   - Any order between tokens of different names.
//   - That a value read under the lock is still current when it is written elsewhere: read within the
//     guarded effect, or raise the mark first. An etcdfence.Writer has no such gap.
//   - Increasing tokens after a restore of etcd without --bump-revision or etcdfence.BumpEpoch.
package fencing
