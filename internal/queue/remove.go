package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
)

// removeAgain is the pause after etcd has refused to remove an entry.
const removeAgain = time.Second

// remove takes the entry out of etcd and finishes the attempt. nil: it was there
// (or may have been) and is not any more. errEntryGone: another client had
// removed it before. Other errors say what ended the attempts; when one of them
// was not answered, joined with ErrOutcomeUnknown.
//
// An entry whose create revision is not known is left to the sweeper: to delete
// it by key could delete it under one that waits for it.
func (e *entry) remove(ctx context.Context) error {
	if e.stage < created {
		e.finish()
		return nil
	}
	err := e.q.retry(ctx, e.tryRemove)
	unknown := e.removing
	switch {
	case err == nil || errors.Is(err, errEntryGone):
		e.finish()
		return err
	case e.lease.Lost() != nil:
		e.abandon()
	case etcderr.Classify(err) == etcderr.LeaseGone:
		e.q.sess.LeaseGone(ctx, e.lease, err)
		e.finish()
		return err
	case ctx.Err() == nil: // etcd refuses it
		e.q.sess.Logger().Error("holdfast: etcd refuses to remove an entry; the session tries until it can or its lease ends",
			"queue", e.q.kind, "name", e.q.name, "key", e.key, "lease", fmt.Sprintf("%x", int64(e.lease.ID())), "error", err)
		e.q.sess.Telemetry().Sweeping(e.q.kind)
		e.q.sess.Go(e.removeLater) // ends with the lease
	}
	if unknown && !errors.Is(err, holdfast.ErrOutcomeUnknown) {
		return fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
	}
	return err
}

// removeLater tries again and again to remove an entry that etcd refuses to
// remove.
func (e *entry) removeLater(context.Context) {
	ctx := e.lease.Context()
	for sleep(ctx, jittered(removeAgain)) {
		err := e.q.retry(ctx, e.tryRemove)
		if err == nil || errors.Is(err, errEntryGone) {
			e.q.sess.Logger().Info("holdfast: the entry that etcd refused to remove is gone", "queue", e.q.kind, "name", e.q.name, "key", e.key)
			e.finish()
			return
		}
	}
	e.abandon()
}

// removedAtOnce is remove in one attempt, for an entry that held. If it reports
// false, remove has to follow.
func (e *entry) removedAtOnce(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.lease.Context(), cancel)()
	if e.tryRemove(ctx) != nil {
		return false
	}
	e.finish()
	return true
}

// abandon ends an attempt whose lease is lost. The session removes the entry
// before it revokes the lease, unless etcd has let go of both.
func (e *entry) abandon() {
	if cause := e.lease.Lost().Cause; cause == holdfast.CauseRevoked || cause == holdfast.CauseClusterChanged {
		e.finish()
	}
}

// tryRemove sends a removal as soon as the entry may leave, and again when the
// entry ahead has left meanwhile.
func (e *entry) tryRemove(ctx context.Context) error {
	for {
		if err := e.settled(ctx); err != nil {
			return err
		}
		t := txn{cmps: e.mayLeave(), then: []clientv3.Op{clientv3.OpDelete(e.key)}}
		if len(t.cmps) > 1 {
			t.els = []clientv3.Op{clientv3.OpGet(e.key, clientv3.WithKeysOnly())}
		}
		r, err := e.commit(ctx, t)
		if r.unsent {
			return err
		}
		e.removing = e.removing || r.open
		switch {
		case err != nil:
			e.removing = e.q.unknown("remove", err) || e.removing
			return err
		case r.succeeded:
			return nil
		case len(t.els) > 0 && isEntry(first(r.responses[0].GetResponseRange().Kvs), e.rev):
			if err := e.judgeUnknown(ctx); err != nil { // the entry ahead has left
				return err
			}
		case e.removing:
			return nil // by an earlier copy
		default:
			return errEntryGone
		}
	}
}
