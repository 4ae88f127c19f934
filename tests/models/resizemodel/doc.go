// Package resizemodel searches every interleaving of a change of the number of shards while their members run, for one
// in which a tenant has two owners, or a late write passes. Package shard has no such change:
// docs/decisions.md says why. Build it by these rules, and change them here first.
//
//	model.go   scenarios, the rules that are broken on purpose, the steps of the operator, what must hold
//	member.go  a member: it queues, looks, confirms, writes, hands over
//	state.go   the state
//
// # The problem
//
// A key is in shard Of(key, n). With 64 shards tenant t is in shard 7, with 128 it is in 7 or in 71. The lock of 71
// knows nothing of that of 7:
//
//	rev 10  A holds 7 of 64, and serves t
//	rev 20  an operator puts 128 as the number
//	rev 21  B reads 128, puts an entry for 71, finds nothing ahead, and serves t beside A
//
// # The protocol
//
// The number changes by a step. Whatever is held by the old number must have ended before the new number stands, and
// the step is what tells the members to end it.
//
//   - The operator puts the step. Members that hear of it end their functions and release.
//   - What may be held during the step comes in two forms. In the barrier nothing is. Together, shards that exchange
//     tenants are one: a member holds 7 and 71 by one Txn, as a Set does. That needs a number that is doubled or
//     halved; the barrier takes any.
//   - The operator puts the new number, in a Txn that compares that no entry and no claim stands from before the step.
//     A claim without its entry belongs to a member that may not have been told; someone deletes it after its delay.
//   - A member that finds itself first reads the number and the step after that, for each hold, and holds only if both
//     are what it went by.
//
// Why the last two are enough: a member that holds by the old number has read it after its entry stood, so its entry is
// from before the step. Until the new number stands, that entry or its claim makes the Txn fail. An entry that a late
// member puts during the step finds the step, and is not held by.
//
//	rev 10  A holds 7 of 64
//	rev 20  the step is put
//	rev 21  A's lease is revoked; A is not told yet. Its claim of rev 10 stands: the new number is refused
//	rev 25  A has been told, the delay is over, the claim is deleted
//	rev 26  the new number is put
//
// Tokens grow across the change, for they are create revisions, and entries of the new number follow those of the old.
// So a mark that names what is written to, and not the index of a shard, refuses late writes.
//
// # What may happen
//
// At any moment a member hands a shard over or writes; a write is late; a member hears late of the step, or of the new
// number; etcd revokes a lease that was renewed; the operator goes away during the step, which then ends.
//
// # What must hold
//
//   - owners: no tenant is served by two functions whose members trust their leases.
//   - stale: no write lands after one with a larger token.
//   - refused: no write of a member that holds is refused.
//   - stuck: the change can be completed, and each tenant served by the new number.
//
// # What is left out
//
// The queue, which is queuemodel's: here an entry is first or it is not, and late copies of its put do not exist.
package resizemodel
