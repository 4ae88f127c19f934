// Package leasemodel searches every interleaving of a lease's renewals for one in which a session trusts the lease
// although etcd has let it expire. The rule of session/proof.go is changed here first.
//
// # What is modelled
//
// One lease, one session, and leaders of a few Raft terms in discrete time. Each of these is a separate step and may
// happen at any moment:
//
//   - A leader is elected. Later it finds that it leads and gives the lease its full TTL.
//   - A leader that leads proposes to revoke the lease once that has expired by its own clock. The proposal is
//     committed later, also by a successor whose log has it.
//   - A copy of the renewal, or of the read that proves it, is sent; carried out; answered; or lost.
//   - A renewal is acknowledged by any leader that was ever elected: one that was paused and continues does not know
//     of its successor. The reply may name an earlier term, because the member that it was sent to fills the header
//     before it forwards the renewal, with the term of the last entry that it has applied.
//   - A read is confirmed by a leader that leads. The reply may name a later term, because a follower fills the header
//     after the read.
//   - The session keeps one reply of each kind, that to the latest request. When it has both it looks at them, perhaps
//     after a while, and drops the one with the lower term, or the renewal counts.
//   - At the beginning the put of the session key is in the place of the read. A leader gets it into its log, also one
//     that was deposed and does not know. A successor has it in its log, or has not. It is carried out once it is
//     committed, unless a revocation stands before it. The reply may name any term from that of the put's entry on.
//
// # What is left out
//
//   - A deposed leader that gets the lease revoked. No rule of the session can prevent it; the watch of the session key
//     tells of it.
//   - A member that caught up by a snapshot, which etcd lets name an earlier term than the read was confirmed at. See
//     DESIGN.md, and the rule proofHeaderIsOlder.
//   - The drift margin, so that trusted-until and the expiry may meet exactly.
//   - Copies of a renewal that are carried out after another one was answered. They only lengthen its life.
//   - Learners, which serve neither renewals nor linearizable reads, and checkpoints of leases beyond 300 s.
//
// # What must hold
//
// While the session trusts the lease, the lease exists.
//
// TestEachBrokenRuleIsNoticed breaks each rule, of the session and of etcd, and expects that this no longer holds.
// TestRulesThatAreNotNeeded has the ones that may be broken without harm.
//
// # Traces
//
// Runs of a session are compared with the model: one lease on etcdfake, in virtual time, while requests are lost and
// late, etcd does not answer for seconds, and two leaders are elected, of which the former one still acknowledges
// renewals. The session is seen from outside, so it needs no hook. A run is a list of events: a renewal or a read of
// the session key is sent, carried out and answered; a leader is elected; etcd revokes the lease. After each reply
// the time until which the lease is trusted must be that of the model, and the holders' contexts must be canceled if
// the lease is suspended, and only then. No time passes in the model beyond the suspension until they are told of it,
// nor beyond the loss. After a reconnection they have new contexts. A run ends with the loss, or after some 60 s.
//
//	go test ./tests/models/leasemodel -run Runs -model.traces 1000 -model.seed 5000
//
// What is not compared: processes that are stopped, but see below; the lease after the loss; a session key that is
// deleted by hand; which reads are sent as a proof, since those of a watch look the same.
//
// # Real clusters
//
// Follow compares the leases of tests/campaign and tests/simulation with the model, while members and processes fail.
// Which leader has carried out a renewal is not known there, and when. What a session may conclude does not depend on
// that. So etcd may do anything: each request that was sent may be answered, in any term. The session says its steps
// through lease.Observe, with the times of its own clock, which may be fast or slow: the lease is granted; the session
// begins to keep it; a renewal or its proof is sent; a reply arrives, with its term; the renewal counts; the suspension
// is told; the lease is lost.
//
// A renewal must count from the sends that were said, with the terms that arrived, before trusted-until, and never
// after the loss. A suspension is not told before half of the time is over, a loss by the clock not before
// trusted-until. Both may be told a drift margin later, counted from when the session began, since no holder had the
// lease before: timers come late on a busy machine, and those of Go do not follow the clock of a session that is fast
// on purpose. They may be later still if the process was stopped or had no processor. All of this goes by what the
// session says at its clock's time, and not by when goroutines ran: the oracle judges what holders saw.
//
// What is not compared: requests that are not answered; replies after the last confirmation; whether a renewal that may
// count does; leases of more than 300 s; what comes half an hour after the Grant.
package leasemodel
