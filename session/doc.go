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
// The trusted time is the TTL (of at most 300 s) less Options.DriftMargin, counted
// from when the last confirmed renewal was sent. A renewal is sent after three
// eighths of it: with the default TTL of 15 s after 5.06 s; suspended after 6.75 s,
// lost after 13.5 s.
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
//   - One member of several that hangs costs neither the lease nor a suspension,
//     while a quorum is well: what may be repeated is sent again beside it.
//   - Callbacks cannot delay renewals, whatever they do; they are told the
//     changes in order, and never miss a loss. (Options.Retry.Notify is not
//     called for renewals.)
//   - Close joins every goroutine the session has started, and callbacks that
//     return within Options.CloseTimeout. It names the others in a
//     *CallbackError, so it may be called from a callback.
//
// # Not guaranteed
//
//   - That code which has just seen a nil Check is still right when it acts:
//     the process may be paused in between. Fencing covers that: see package
//     fencing.
//   - That a lease which is revoked without an announcement, by an administrator
//     or by a former etcd leader that was stopped and continues, is told before
//     another client acquires what was held with it. The session key's watch tells
//     it, as a rule within some milliseconds; if that is silent, the audit of what
//     is held or the next renewal. Waiters wait Options.LockDelay for that; a
//     newcomer that never waited does not.
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
//	one member of several hangs    nothing; requests go to the others as well
//	permission is withdrawn        renewals fail; Lost at trusted-until, with why
//	the lease is revoked           Lost at once; a new lease follows
//	the session key is deleted     it is put again; a warning, nothing is lost. Lost
//	                               if etcd does not answer that within a quarter of
//	                               Options.LockDelay
//	the etcd client is closed      Lost at once, for good: holdfast.ErrClientClosed
//
// # In etcd
//
// Each lease has one key of the session's own, NAMESPACE/session/LEASE in hex,
// which goes with it. The role of every session needs to read and write below
// NAMESPACE/session/. The value is a JSON object: v, the number of the format, 1;
// owner; host; pid. See Options.Owner and Options.Anonymous.
//
// Errors that several packages return live here: holdfast.ErrSuspended, holdfast.ErrClosed,
// holdfast.ErrClientClosed, holdfast.ErrReleased, holdfast.ErrOutcomeUnknown, holdfast.ErrReentrant, *holdfast.LostError,
// *CallbackError, *holdfast.NameError, *holdfast.ArgumentError.
package session
