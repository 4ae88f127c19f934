package queue

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/names"
)

// errMoved: another update of the same entry came first.
var errMoved = errors.New("the value was changed meanwhile")

// Update puts other data into the value of the hold's entry. nil: it stands, since the
// revision returned. Otherwise Check's answer if the hold has ended, or ends by
// what etcd says; or ctx's error, or what etcd said that no retry can mend,
// joined with holdfast.ErrOutcomeUnknown if a send was not answered: it may
// still take effect, as long as the entry stands and no later Update has
// succeeded.
//
// That is what the comparison of the mod revision is for: a put that comes
// late must not undo a later one. Only the holder changes the value, so a mod
// revision that has moved on was moved by one of our own sends, of Update or of
// sinceNoter; whichever comes second finds that out.
func (h *Hold) Update(ctx context.Context, data string) (int64, error) {
	if ctx == nil {
		return 0, &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	if !h.Live() {
		return 0, h.Check()
	}
	e := h.entry
	value := e.heldValue(h.since, data)
	uctx, cancel := h.Context(ctx, false)
	defer cancel()
	var since int64
	unanswered := false
	var cause holdfast.Cause // of a loss
	err := e.q.retry(uctx, func(ctx context.Context) error {
		mod := max(h.modified.Load(), e.rev)
		resp, open, err := attempt.Once(ctx, e.q.sess.Sender(), attempt.Write, func(ctx context.Context) (*clientv3.TxnResponse, error) {
			return e.q.sess.Client().Txn(ctx).
				If(e.holdsValue(mod)...).
				Then(e.putValue(value)).
				Else(clientv3.OpGet(e.key), clientv3.OpGet(e.sessionKey(), clientv3.WithKeysOnly())).
				Commit()
		})
		unanswered = unanswered || open
		if err != nil {
			unanswered = e.q.unknown("proclaim", err) || unanswered
			return err
		}
		if resp.Succeeded {
			since = resp.Header.Revision
			h.sawModified(since)
			return nil
		}
		kvs := resp.Responses[0].GetResponseRange().Kvs
		if len(kvs) == 0 || kvs[0].CreateRevision != e.rev {
			cause = e.q.local.audit.causeOf(resp.Header, resp.Responses[1])
			return errEntryGone
		}
		since = kvs[0].ModRevision
		h.sawModified(since)
		if string(kvs[0].Value) == value {
			return nil // an earlier send arrived after all
		}
		return backoff.Again(errMoved)
	})
	switch {
	case err == nil:
		return since, nil
	case errors.Is(err, errEntryGone):
		h.end(h.entryGone(cause))
		e.q.local.audit.askFor(e.lease)
		return 0, h.Check()
	case etcderr.Classify(err) == etcderr.LeaseGone:
		e.q.sess.LeaseGone(ctx, e.lease, err) // etcd knew before the session did
		return 0, h.Check()
	case !h.Live():
		return 0, h.Check()
	case unanswered && !errors.Is(err, holdfast.ErrOutcomeUnknown):
		err = fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
	}
	return 0, fmt.Errorf("proclaim in %s %s (token %d): %w", e.q.kind, names.Quote(e.q.name), e.token, err)
}

// sawModified notes a mod revision of the entry. They only grow.
func (h *Hold) sawModified(rev int64) {
	for {
		known := h.modified.Load()
		if known >= rev || h.modified.CompareAndSwap(known, rev) {
			return
		}
	}
}
