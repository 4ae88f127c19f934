// Package session keeps one etcd lease alive and says, honestly and in time,
// what has become of it. Locks and elections are built on it; one session per
// process serves any number of them, and renewal traffic does not grow with
// what is held.
//
//	sess, err := session.New(ctx, cli, nil)
//	if err != nil { … }
//	defer sess.Close(context.Background())
//
// ClientConfig has settings of etcd's client that suit a session.
//
// # States
//
//	            renewals confirmed           half of the trusted time
//	           ┌───────────────────┐         without one
//	New ─────▶ │     Connected     │ ─────────────────────▶ Suspended
//	           └───────────────────┘ ◀───────────────────── (perhaps held)
//	             ▲        the same lease, renewed after all     │
//	             │ a new lease                                  │ trusted-until has passed,
//	             └──────────────────── Lost ◀───────────────────┘ or etcd says it is gone
//
//	Close, from any state ─────▶ Closed
//
// Check judges the state at the moment of the call, from the clock and without
// an RPC, so it is right even after a pause in which no timer could fire.
//
// # Guarantees
//
//   - A loss is told (Check, the contexts of handles, events) no later than the
//     earliest moment at which any etcd leader may expire the lease. Trust is
//     counted from when a renewal was sent, less a margin for clocks that drift,
//     and a renewal counts only when a read has proved that the leader which
//     acknowledged it is the one the cluster follows.
//   - What was lost stays lost. A new lease follows by itself; handles of the
//     old one are not revived by it.
//   - Callbacks cannot delay renewals, whatever they do; they are told the
//     changes in order, and never miss a loss.
//   - Close joins every goroutine the session has started, and callbacks that
//     return within Options.CloseTimeout.
//
// # Not guaranteed
//
//   - That code which has just seen a nil Check is still right when it acts:
//     the process may be paused in between. Fencing covers that: see package
//     fencing.
//   - That a lease which is revoked without an announcement, by an administrator
//     or by a former etcd leader that was stopped and goes on, is told before
//     someone else acquires what was held with it. The session key's watch tells
//     it, as a rule within some milliseconds, and the next renewal at the latest;
//     waiters wait Options.LockDelay for that.
//   - Anything through etcd's grpc-proxy, which may answer one renewal with the
//     reply to another.
//
// # What happens when
//
//	etcd unreachable for a while   Suspended after half of the trusted time, then
//	                               Connected again: nothing was lost
//	etcd unreachable for longer    Lost at trusted-until; a new lease as soon as
//	                               etcd answers; the old one is revoked a drift margin
//	                               after the loss
//	the process is paused          the first Check afterwards says how long it was
//	the machine sleeps             the same, on Linux
//	the wall clock jumps           nothing
//	etcd's leader changes          nothing; etcd gives the lease its full TTL again
//	permission is withdrawn        renewals fail; Lost at trusted-until, with why
//	the lease is revoked           Lost at once; a new lease follows
//	the session key is deleted     it is put again; a warning, nothing is lost
//	the etcd client is closed      Lost at once, for good: ErrClientClosed
//
// # In etcd
//
// Each lease has one key of the session's own, NAMESPACE/session/LEASE in hex. Its
// value is a JSON object: v, the number of the format, 1; owner; host; pid. See
// Options.Owner and Options.Anonymous.
//
// Errors that several packages return live here: ErrSuspended, ErrClosed,
// ErrClientClosed, *CallbackError, ErrReleased, ErrOutcomeUnknown, ErrReentrant, *LostError, *NameError,
// *ArgumentError.
package session
