// Package session keeps one etcd lease alive and reports its loss before etcd can expire it. One session per process
// serves any number of locks and elections; renewal traffic does not grow with what is held.
//
//	sess, err := session.New(ctx, cli, session.Options{})
//	if err != nil { … }
//	defer sess.Close(context.Background())
//
// # States
//
//	            renewals confirmed           half of the trusted time
//	           ┌───────────────────┐         without one
//	New ─────▶ │     Connected     │ ─────────────────────▶ Suspended
//	           └───────────────────┘ ◀───────────────────── (probably held)
//	             ▲        the same lease, renewed after all     │
//	             │ a new lease                                  │ trusted-until has passed,
//	             └──────────────────── Lost ◀───────────────────┘ or etcd says: the lease is gone
//
//	Close, from any state ─────▶ Closed
//
// The trusted time is the TTL (300 s at most) minus [Options].DriftMargin, counted from when the last confirmed renewal
// was sent: by default 13.5 s. The session sends a renewal after three eighths of it (5.06 s), or earlier where round
// trips take more than a twelfth of it.
//
// # Guarantees
//
//   - You are told of a loss (by Check, contexts and events) before any etcd leader can expire the lease. A renewal
//     counts only if a read, sent together with it, proves: the leader was not deposed before it acknowledged.
//   - A loss is final. Locks and terms of the old lease stay lost when the session gets a new lease.
//   - Callbacks cannot delay renewals.
//
// # Not guaranteed
//
//   - Code may act on a nil Check after the lease is lost: the process may be paused in between. Fence the writes: see
//     package fencing.
//   - The holder of a lease that was revoked, by hand or by a deposed etcd leader, may be told after another client
//     has acquired its lock. Watches of the session key on a majority of the members tell it, usually within
//     milliseconds; if those hang, the next poll or renewal; if no member is reached, the end of the trusted time.
//     All others wait Options.LockDelay for that, whether they have queued before or come later.
//   - Nothing is promised through etcd's grpc-proxy, or by a server with a part of etcd's API (kine, as in k3s): New
//     refuses such a server with ErrNotEtcd.
//
// # What happens when
//
//	etcd is unreachable, briefly   Suspended, then Connected: nothing was lost
//	etcd is unreachable, longer    Lost at trusted-until; a new lease as soon as etcd answers
//	the process is paused          the first Check afterwards counts the pause
//	the machine sleeps             the same, on Linux
//	the wall clock jumps           nothing
//	etcd's leader changes          nothing; etcd gives the lease its full TTL again
//	one member of several hangs    nothing, not even a suspension, while a quorum is healthy
//	etcd is slow, or far away      nothing is suspended while a round trip takes less than a quarter of the trusted time,
//	                               and nothing is lost below a half of it
//	permission is withdrawn        renewals fail; Lost at trusted-until, with the reason
//	the lease is revoked           Lost at once; a new lease follows
//	its claims' lease is revoked   Lost at the next lock, or when it is renewed next (within 100 s by default)
//	the session key is deleted     put again, with a warning; Lost if etcd does not answer in LockDelay/4
//	the etcd client is closed      Lost at once, and for good: holdfast.ErrClientClosed
//
// The session key, NAMESPACE/session/LEASE (in hex), is deleted with the lease. Its value is JSON: v, the format
// number, 2; owner; host; pid.
//
// If you read the source, begin with session.go.
package session
