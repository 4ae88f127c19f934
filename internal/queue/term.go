package queue

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// What follows is for terms of an election, which last long: locks do not use it.

// errModified: another update of the same entry came first.
var errModified = errors.New("the value was changed in the meantime")

// Update replaces the data in the entry's value. nil: the entry has it since the revision returned. Otherwise it
// returns Check's result, if the hold has ended; ctx's error; or an error of etcd that no retry can mend. The error is
// joined with holdfast.ErrOutcomeUnknown if a request was not answered: the update may still take effect while the
// entry exists and no later Update has succeeded.
//
// Only the holder changes the value. So if the mod revision has moved, Update or heldWriter moved it, and the reply
// says which value is there.
func (h *Hold) Update(ctx context.Context, data string) (int64, error) {
	if ctx == nil {
		return 0, &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	if !h.Live() {
		return 0, h.Check()
	}
	e := h.entry
	hctx, cancel := h.Context(ctx, false)
	defer cancel()
	u := update{value: e.heldValue(h.since, data)}
	err := e.q.retry(hctx, func(ctx context.Context) error { return h.tryUpdate(ctx, &u) })
	switch {
	case err == nil:
		return u.since, nil
	case errors.Is(err, errEntryGone):
		h.endAndRelease(h.lossOfEntry(u.loss))
		e.q.shared.poll.checkLease(e.lease)
		return 0, h.Check()
	case etcderr.Classify(err) == etcderr.LeaseGone:
		e.q.host.LeaseGone(ctx, e.lease, err) // etcd has told this call before the session
		return 0, h.Check()
	case !h.Live():
		return 0, h.Check()
	case u.unanswered && !errors.Is(err, holdfast.ErrOutcomeUnknown):
		err = fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
	}
	return 0, fmt.Errorf("proclaim in %s %s (token %d): %w", e.q.at.Kind, names.Quote(e.q.at.Name), e.token, err)
}

// update is one call of Update.
type update struct {
	value      string
	since      int64          // the revision of the value, when it stands
	unanswered bool           // a request may still arrive
	loss       holdfast.Cause // with errEntryGone
}

// tryUpdate sends the value once. It returns errEntryGone, or an error of which retry decides.
func (h *Hold) tryUpdate(ctx context.Context, u *update) error {
	e := h.entry
	r, err := e.commit(ctx, txns.Txn{
		If:   e.unmodifiedSince(max(h.modified.Load(), e.rev)),
		Then: []clientv3.Op{e.putValue(u.value)},
		Else: []clientv3.Op{clientv3.OpGet(e.key), getMeta(e.sessionKey())},
	})
	u.unanswered = e.q.reportUnknown("proclaim", err) || r.Unanswered || u.unanswered
	if err != nil {
		return err
	}
	if r.Succeeded {
		u.since = r.Header.Revision
		h.sawModified(u.since)
		return nil
	}
	kv := r.First(0)
	if !isEntry(kv, e.rev) {
		u.loss = e.q.shared.poll.causeOf(r, 1)
		return errEntryGone
	}
	u.since = kv.ModRevision
	h.sawModified(u.since)
	if string(kv.Value) == u.value {
		return nil // an earlier request was carried out after all
	}
	return backoff.Again(errModified)
}

// unmodifiedSince is true in a Txn as long as the entry stands with the value that
// was put at mod.
func (e *entry) unmodifiedSince(mod int64) []clientv3.Cmp {
	return []clientv3.Cmp{e.owned(), clientv3.Compare(clientv3.ModRevision(e.key), "=", mod)}
}

// putValue replaces the value. The entry keeps its lease.
func (e *entry) putValue(value string) clientv3.Op {
	return clientv3.OpPut(e.key, value, clientv3.WithIgnoreLease())
}

// sawModified records a mod revision of the entry. They only grow.
func (h *Hold) sawModified(rev int64) {
	for {
		known := h.modified.Load()
		if known >= rev || h.modified.CompareAndSwap(known, rev) {
			return
		}
	}
}

// Requeue ends the hold and queues again, at the back, in one Txn. The ticket joins the line before the hold ends, so
// that handOff finds it there and puts its entry. Goroutines of this session that were already waiting go first.
//
// If the hold had ended before, Requeue queues nothing and returns Check's result. Otherwise the hold is released, and
// the rest is as with Acquire.
func (h *Hold) Requeue(ctx context.Context, r Request) (_ *Hold, err error) {
	q := h.entry.q
	if err := q.usable(ctx); err != nil {
		return nil, err
	}
	if !h.Live() {
		return nil, h.Check()
	}
	ctx, r.telemetry = q.host.Telemetry().Acquire(ctx, q.at.Kind, q.at.Name)
	defer func() { q.reportAcquire(ctx, r, err) }()

	t := q.newTicket(r)
	ln := q.shared.join(t, false)
	if !h.endAndRelease(holdfast.ErrReleased) {
		ln.withdraw(t)
		return nil, h.Check() // it has ended since Live was asked
	}
	e, err := ln.awaitTurn(ctx, t)
	if err != nil {
		return nil, err
	}
	return single(acquire(ctx, []turn{{ln, t}}, e, condition{}))
}

// Abandon makes the hold lost, unless it has ended, and returns Check's result. It waits for the removal of the entry
// for at most giveUpWait; the session finishes it.
func (h *Hold) Abandon(cause holdfast.Cause) error {
	h.endAndRelease(h.lost(cause))
	patience, cancel := context.WithTimeout(context.Background(), giveUpWait)
	defer cancel()
	h.line.awaitRemoval(patience, h.entry, h.removed)
	return h.Check()
}

// Resume waits while the hold is suspended, and then reads whether its entry exists. nil: the hold is connected, and a
// linearizable read after the reconnection has seen the entry. Otherwise it returns Check's result, if the hold has
// ended; ctx's error; or an error of etcd that no retry can mend.
func (h *Hold) Resume(ctx context.Context) error {
	hctx, cancel := h.Context(ctx, false)
	defer cancel()
	for {
		stands := false
		err := h.entry.lease.AwaitConnected(hctx)
		if err == nil {
			stands, err = h.entryStands(hctx)
		}
		switch {
		case !h.Live():
			return h.Check()
		case ctx.Err() != nil:
			return backoff.ContextErr(ctx)
		case err != nil:
			return err
		case !stands:
			h.endAndRelease(h.askWhyGone(h.entry.lease.Context()))
			return h.Check()
		case h.Check() == nil:
			return nil
		}
	}
}

// entryStands reads whether the hold's entry is in etcd. Nothing can have joined the
// queue ahead of it.
func (h *Hold) entryStands(ctx context.Context) (bool, error) {
	resp, err := h.entry.q.get(ctx, getMeta(h.entry.key))
	return err == nil && isEntry(txns.First(resp.Kvs), h.entry.rev), err
}
