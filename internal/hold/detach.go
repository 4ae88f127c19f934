package hold

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// Bounds of the time for which a ticket is good: etcd has no shorter leases, and a ticket that was lost keeps the name
// taken for so long.
const minWithin, maxWithin = time.Second, 24 * time.Hour

// Detach ends the hold, and puts its entry and claim on a lease of that time, which nothing renews. The ticket lets one
// session Attach them. Until then none holds, and if that lease ends before, the next one holds at once.
//
// Without a ticket the entry is removed, as Release does, and the ticket's lease is revoked. Errors:
// *holdfast.ArgumentError before anything is sent, and the hold goes on; Check's result if the hold has ended before,
// or turns out to be lost; ctx's error, also with holdfast.ErrOutcomeUnknown; etcd's where a retry cannot help.
func (h *Hold) Detach(ctx context.Context, within time.Duration) (layout.Ticket, error) {
	// The revision is taken before the hold ends. The poller ends the hold, too, and records the revision of a notice
	// after that:
	//
	//	rev 10  the entry, as this session knows it
	//	rev 20  an administrator puts a notice; the poller has read it, and waits for the stop below to end
	//	        the Txn compares mod = 10, and is refused. With 20 it would put a value without the notice
	known := h.known()
	switch {
	case ctx == nil:
		return layout.Ticket{}, &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	case within < minWithin || within > maxWithin:
		reason := fmt.Sprintf("is %v, not between %v and %v", within, minWithin, maxWithin)
		return layout.Ticket{}, &holdfast.ArgumentError{Argument: "within", Reason: reason}
	case !h.Live() || !h.stop(holdfast.ErrReleased):
		return layout.Ticket{}, h.Check()
	}
	// The hold has ended before anything is sent, for nothing tells this session when the ticket's lease ends:
	//
	//	rev 20  the Txn puts both keys on D, that lease; its reply is late
	//	rev 30  an administrator revokes D: both keys go in one revision, and the next one holds without a delay
	h.grant.TakeFor(0)               // MinHold counts from the release of the hold that goes on
	ctx, end := h.host.Detached(ctx) // after stop, because ctx may be derived from one of the hold's own contexts
	defer end()
	d := detaching{hold: h, within: within, mod: known, value: h.heldValue(h.since, "")}
	if err := d.send(ctx); err != nil {
		return layout.Ticket{}, d.giveUp(ctx, err)
	}
	h.grant.LeaveLine() // the next goroutine queues behind the entry, as another session does
	h.grant.Left(nil)   // the entry stays, so its key is not used again
	h.removal.detached = true
	h.removal.wasRemoved()
	v, _ := layout.DecodeValue([]byte(d.value))
	return layout.Ticket{
		Namespace: h.host.Namespace, Key: h.Key(), Created: h.Created(), Mod: d.mod, Token: h.Token(),
		Lease: d.own.id, Queued: v.Queued, Held: layout.Millis(h.since), Until: layout.Millis(d.own.until),
	}, nil
}

// detaching is one call of Detach.
type detaching struct {
	hold    *Hold
	within  time.Duration
	mod     int64  // of the entry, as it is known
	value   string // at mod
	own     ownLease
	unknown bool // a Txn may have put the entry on that lease
}

func (d *detaching) send(ctx context.Context) error {
	// ctx may end with the loss of another lock. That is no loss of this one, so the request does not take its cause.
	ctx, cancel := lease.ForRequest(ctx, d.hold.grant.Lease, 0)
	defer cancel()
	return d.hold.grant.Retry(ctx, d.try)
}

// try sends the Grant, if none has a reply yet, and the Txn.
func (d *detaching) try(ctx context.Context) error {
	g := d.hold.grant
	if err := d.own.obtain(ctx, d.hold.host.Env, d.within); err != nil {
		return err
	}
	v, _ := layout.DecodeValue([]byte(d.value))
	v.Held, v.Detached, v.DetachedUntil = d.hold.since, d.hold.until, d.own.until
	// A claim that was deleted by hand is not put: etcd refuses a Txn that keeps the value of a key that is not there.
	putClaim := clientv3.OpPut(g.Claim, "", clientv3.WithIgnoreValue(), clientv3.WithLease(d.own.id))
	claimStands := clientv3.Compare(clientv3.CreateRevision(g.Claim), "=", g.Created)
	// By the mod revision, so what an administrator has written meanwhile stays: see update.try.
	r, err := g.Commit(ctx, requests.Txn{
		If: []clientv3.Cmp{d.hold.unmodifiedSince(d.mod)},
		Then: []clientv3.Op{
			clientv3.OpPut(g.Key, v.Encode(), clientv3.WithLease(d.own.id)),
			clientv3.OpTxn([]clientv3.Cmp{claimStands}, []clientv3.Op{putClaim}, nil),
		},
		Else: []clientv3.Op{clientv3.OpGet(g.Key)},
	})
	g.Queue.ReportUnknown("move", err)
	d.unknown = err != nil // a reply tells what those before it did
	switch {
	case etcderr.Classify(err) == etcderr.LeaseGone: // it was revoked by hand, or is over
		d.own, d.unknown = ownLease{}, false
		return retry.Again(err)
	case err != nil:
		return err
	case r.Succeeded:
		d.mod = r.Header.Revision
		return nil
	}
	kv := r.First(0)
	if !g.Is(kv) {
		return queue.ErrEntryGone
	}
	d.mod, d.value = kv.ModRevision, string(kv.Value)
	if kv.Lease == int64(d.own.id) {
		return nil // by a copy whose reply was lost
	}
	if stands, _ := layout.DecodeValue(kv.Value); stands.Notice.Given() {
		lost := d.hold.lost(stands.Notice.Cause())
		lost.Err = stands.Notice.Kick()
		return retry.Final(lost)
	}
	return retry.Again(errModified) // by heldWriter
}

// giveUp removes the entry, wherever it is, and returns why there is no ticket.
func (d *detaching) giveUp(ctx context.Context, err error) error {
	h := d.hold
	go func() { h.removal.finalize(h.grant.HandOff()) }() // Close joins it; it may call an auditor, which may block
	// HandOff ends with the session's own lease, and a copy without a reply may have put the entry on D. Then only the
	// revocation frees the name before D is over:
	//
	//	 0 s  rev 20: the Txn puts both keys on D, which has an hour; its reply is lost, and the process is cut off
	//	14 s  the session's lease is lost, and HandOff ends
	//	25 s  etcd answers again: rev 30, D is revoked, and both keys go
	if !h.host.Go(func(ctx context.Context) { // joined by Close
		h.removal.leave(ctx)
		d.report(d.revoke(ctx))
	}) {
		d.report(d.revokeOnce(ctx)) // closed: HandOff sends nothing
	}
	removed := h.removal.await(ctx)
	switch {
	case errors.Is(err, holdfast.ErrLost):
	case errors.Is(removed, holdfast.ErrLost):
		err = removed
	default:
		err = fmt.Errorf("detach %s (%slease %x): %w; there is no ticket, and the hold has ended",
			h.Queue(), h.tokenText(), int64(h.Lease()), err)
		if removed != nil {
			err = fmt.Errorf("%w; %w", err, removed)
		}
	}
	if d.unknown && removed != nil {
		err = fmt.Errorf("%w; the entry may be on the ticket's lease %x, which ends at %s unless the session revokes it",
			err, int64(d.own.id), d.own.end())
	}
	return err
}

// revoke revokes the lease. It tries until etcd has answered or the lease is over, and from Close on for half of
// CloseTimeout.
func (d *detaching) revoke(ctx context.Context) error {
	host := d.hold.host
	err := lease.Retry(ctx, host.Env, d.revokeOnce)
	if ctx.Err() == nil {
		return err
	}
	ctx, cancel := host.Detached(ctx)
	defer cancel()
	deadline, _ := ctx.Deadline()
	ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2) // Close waits for all of it, and is to see the end
	defer cancel()
	return lease.Retry(ctx, host.Env, d.revokeOnce)
}

// revokeOnce sends one revocation, unless the lease is over. nil: it is gone.
func (d *detaching) revokeOnce(ctx context.Context) error {
	host := d.hold.host
	if !time.Now().Before(d.own.until) { // or none was granted
		return nil
	}
	_, _, err := requests.Once(ctx, host.Sender, requests.Unhurried,
		func(ctx context.Context) (*clientv3.LeaseRevokeResponse, error) {
			return host.Client.Revoke(ctx, d.own.id)
		})
	if etcderr.Classify(err) == etcderr.LeaseGone {
		return nil
	}
	return err
}

// report logs that the name may stay taken, if neither the revocation nor the removal was confirmed.
func (d *detaching) report(revoked error) {
	h := d.hold
	select {
	case <-h.removal.done:
		if h.removal.outcome == nil {
			return
		}
	default:
	}
	if revoked == nil {
		return
	}
	h.host.Logger.Warn("holdfast: a lock whose Detach was given up may stay taken: "+
		"the lease of its ticket was not revoked; a kick frees the name",
		"lock", h.Queue().String(), "key", names.Quote(h.Key()), "lease", names.Lease(d.own.id), "until", d.own.end(),
		"error", revoked)
}

// Attach goes on with the hold of a ticket, in the session of q: see queue.Attach.
func Attach(ctx context.Context, q *queue.Queue, t layout.Ticket, r Request) (*Hold, error) {
	g, err := queue.Attach(ctx, q, t, r.Request)
	if err != nil {
		return nil, err
	}
	r.attached = t.Held
	if now := time.Now(); r.attached.After(now) { // by the clock of another process
		r.attached = now
	}
	return Begin([]*queue.Grant{g}, r)[0], nil
}
