// Package session keeps one etcd lease alive and reports, in time, what has become of it. Locks and elections are
// built on it. One session per process serves any number of them; renewal traffic does not grow with what is held.
//
//	sess, err := session.New(ctx, cli, nil)
//	if err != nil { … }
//	defer sess.Close(context.Background())
//
// [ClientConfig] has settings of etcd's client that suit a session.
//
// # States
//
//	            renewals confirmed           half of the trusted time
//	           ┌───────────────────┐         without one
//	New ─────▶ │     Connected     │ ─────────────────────▶ Suspended
//	           └───────────────────┘ ◀───────────────────── (probably held)
//	             ▲        the same lease, renewed after all     │
//	             │ a new lease                                  │ trusted-until has passed,
//	             └──────────────────── Lost ◀───────────────────┘ or etcd says that the lease is gone
//
//	Close, from any state ─────▶ Closed
//
// The trusted time is the TTL (300 s at most) minus Options.DriftMargin, counted from when the last confirmed
// renewal was sent. With the default TTL of 15 s it is 13.5 s: a renewal is sent after three eighths of it, 5.06 s;
// the session is suspended after half of it, 6.75 s; and lost after 13.5 s.
//
// [Session.Check] judges the state at the time of the call, by the clock and without an RPC, so it is right even
// after a pause in which no timer could fire. [Session.Subscribe] reports changes of state. [Session.Done] is
// closed when no lease will follow.
//
// # Guarantees
//
//   - A loss is reported (by Check, the contexts of locks and terms, and events) before any etcd leader can expire the
//     lease. Trust is counted from when a renewal was sent, minus a margin for clock drift, and a renewal counts only
//     if a read, sent together with it, proves that the leader which acknowledged it had not been deposed before.
//   - A loss is final. The session gets a new lease, but locks and terms of the old one stay lost.
//   - One hung member of several costs neither the lease nor a suspension while a quorum is healthy: requests that
//     may be repeated are sent to the other members as well.
//   - Callbacks cannot delay renewals. They get the changes of state in order, and every loss. (Options.Retry.Notify is
//     not called for renewals.)
//   - Close joins every goroutine of the session, and every callback that returns within Options.CloseTimeout. It names
//     the others in a [*CallbackError], so a callback may call Close.
//
// # Not guaranteed
//
//   - That code is still right when it acts on a nil Check: the process may be paused in between. Fencing tokens cover
//     that; see package fencing.
//   - That the holder of a revoked lease learns of it before another client acquires its lock. An administrator can
//     revoke a lease, and so can a former etcd leader that was paused. The watch of the session key usually reports
//     it within milliseconds; if the watch hangs, the next look at the held entries or the next renewal does.
//     Waiters wait Options.LockDelay for that; a client that never had to wait does not. A holder that reaches no
//     member of etcd learns of it when its lease is no longer trusted.
//   - Anything through etcd's grpc-proxy, which may answer one renewal with the reply to another.
//
// # What happens when
//
//	etcd is unreachable, briefly   Suspended after half of the trusted time, then Connected: nothing was lost
//	etcd is unreachable, longer    Lost at trusted-until; a new lease as soon as etcd answers; the old one is
//	                               revoked a drift margin after the loss
//	the process is paused          the first Check afterwards counts the pause
//	the machine sleeps             the same, on Linux
//	the wall clock jumps           nothing
//	etcd's leader changes          nothing; etcd gives the lease its full TTL again
//	one member of several hangs    nothing; requests go to the others as well
//	etcd answers slowly            nothing is lost while a linearizable read takes less than half of the trusted time
//	permission is withdrawn        renewals fail; Lost at trusted-until, with the reason
//	the lease is revoked           Lost at once; a new lease follows
//	the session key is deleted     the session puts it again and logs a warning; Lost if etcd does not answer within
//	                               a quarter of Options.LockDelay
//	the etcd client is closed      Lost at once, and for good: holdfast.ErrClientClosed
//
// # In etcd
//
// Each lease has one session key, NAMESPACE/session/LEASE (in hex), which is deleted with it. The role of every
// session needs to read and write below NAMESPACE/session/. The value is a JSON object: v, the format number, 1;
// owner; host; pid. See Options.Owner and Options.Anonymous.
package session
