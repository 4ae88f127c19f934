package hold

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// What follows is for terms of an election. They last long; locks do not use it.

// errModified: another update of the same entry came first.
var errModified = errors.New("the value was changed in the meantime")

// Update replaces the data in the entry's value. nil: the entry has it. Otherwise it returns Check's result, if the
// hold has ended; ctx's error; or an error of etcd that no retry can mend. The error is joined with
// holdfast.ErrOutcomeUnknown if a request was not answered: the update may still take effect while the entry exists and
// no later Update has succeeded.
func (h *Hold) Update(ctx context.Context, data string) error {
	if ctx == nil {
		return &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	if !h.Live() {
		return h.Check()
	}
	hctx, cancel := h.Context(ctx, false)
	defer cancel()
	u := update{hold: h, value: h.heldValue(h.since, data)}
	err := lease.Retry(hctx, h.host.Env, u.try)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, queue.ErrEntryGone):
		h.endAndRelease(h.lossOfEntry(u.loss))
		h.poll.checkLease(h.grant.Lease)
		return h.Check()
	case etcderr.Classify(err) == etcderr.LeaseGone:
		h.host.LeaseGone(ctx, h.grant.Lease, err) // etcd has told this call before the session
		return h.Check()
	case !h.Live(): // it has ended hctx, and so the update
		return h.Check()
	}
	unknown := u.unanswered || errors.Is(err, holdfast.ErrOutcomeUnknown)
	if ctx.Err() != nil {
		err = retry.OfCaller(ctx, err)
	}
	if unknown && !errors.Is(err, holdfast.ErrOutcomeUnknown) {
		err = fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
	}
	return fmt.Errorf("proclaim in %s %s (token %d): %w",
		h.Queue().Kind(), names.Quote(h.Queue().Name()), h.Token(), err)
}

// update is one call of Update.
type update struct {
	hold       *Hold
	value      string
	unanswered bool           // a request may still arrive
	loss       holdfast.Cause // with queue.ErrEntryGone
}

// try sends the value once. It returns queue.ErrEntryGone, or an error of which retry decides.
func (u *update) try(ctx context.Context) error {
	h := u.hold
	known := h.known()
	if !h.Live() { // after known: noteEntry ends the hold first, and then records the mod revision
		return h.Check()
	}
	// Besides the holder only administrators change the value, and an update must not replace their notice:
	//
	//	rev 10  the leader's entry
	//	rev 20  an administrator puts a notice into it
	//	rev 21  an update that compared nothing would put a value without the notice: the leader would never be told
	//
	// So it compares the known mod revision. If that has moved, the reply has the value.
	r, err := h.grant.Commit(ctx, requests.Txn{
		If:   []clientv3.Cmp{h.unmodifiedSince(known)},
		Then: []clientv3.Op{queue.PutValue(h.Key(), u.value)},
		Else: []clientv3.Op{clientv3.OpGet(h.Key()), queue.Meta(h.grant.Lease.Key())},
	})
	u.unanswered = h.Queue().ReportUnknown("proclaim", err) || r.Unanswered || u.unanswered
	if err != nil {
		return err
	}
	if r.Succeeded {
		h.noteModified(r.Header.Revision)
		return nil
	}
	kv := r.First(0)
	if !h.grant.Is(kv) {
		u.loss = h.poll.causeOf(r, 1)
		return queue.ErrEntryGone
	}
	h.noteEntry(kv) // a notice ends the hold, and with it ctx
	if string(kv.Value) == u.value {
		return nil // an earlier request was carried out after all
	}
	return retry.Again(errModified)
}

// abandonWait is for how long Abandon waits.
const abandonWait = 250 * time.Millisecond

// Abandon makes the hold lost, unless it has ended, and returns Check's result. An entry that was left to Release goes,
// too. Abandon waits for the removal for at most 250 ms; the session finishes it.
func (h *Hold) Abandon(cause holdfast.Cause) error {
	h.endAndRelease(h.lost(cause))
	h.removeKept() // a notice may have ended the hold before
	patience, cancel := context.WithTimeout(context.Background(), abandonWait)
	defer cancel()
	h.removal.leave(patience)
	return h.Check()
}
