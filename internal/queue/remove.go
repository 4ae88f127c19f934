package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/calls"
	"github.com/holdfast-go/holdfast/internal/reads"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// removeRetry is the pause after etcd has refused to remove an entry.
const removeRetry = time.Second

// tryRemove removes the entry as soon as it may be removed. nil: the entry existed, or may have existed, and is gone.
// ErrEntryGone: another client had deleted it. It ends with ctx, for a caller that waits; remove does not.
func (e *entry) tryRemove(ctx context.Context) error {
	for {
		then := txns.Ops{clientv3.OpDelete(e.key)}
		var look sight
		if e.stage < held {
			if err := e.prepareToLeave(ctx); err != nil {
				return err
			}
			look = e.wait.look(&then)
		}
		t := txns.Txn{About: e.q.At.Entries, If: e.removalCmps(), Then: then}
		if len(t.If) > 1 { // which of them was false?
			t.Else = []clientv3.Op{reads.Meta(e.key)}
		}
		r, err := e.q.shared.commits.Commit(ctx, t)
		if r.Unsent {
			return err
		}
		e.removing = err != nil && e.q.ReportUnknown("remove", err) || r.Unanswered || e.removing
		switch {
		case err != nil:
			return err
		case r.Succeeded:
			look.saw(r)
			return nil
		case len(t.Else) > 0 && reads.IsEntry(r.First(0), e.rev):
			// The entry ahead has left. Leaving now could hide a revoked holder from
			// the entry behind: judge as if going on, then leave.
			if err := e.wait.verify(ctx); err != nil {
				return err
			}
		case e.removing:
			return nil // by a copy of ours that was not answered
		default:
			return ErrEntryGone
		}
	}
}

// prepareToLeave waits until an entry that does not hold may be removed.
func (e *entry) prepareToLeave(ctx context.Context) error {
	if p := e.wait.permit; p != nil {
		return p.markToLeave(ctx)
	}
	return e.wait.untilRemovable(ctx)
}

// remove removes the entry, retrying while that can help, and finishes the attempt. It returns what tryRemove does, or
// the error of the last try, joined with ErrOutcomeUnknown if a try was not answered.
//
// An entry whose create revision is unknown is left to the sweeper: a deletion by key could come before the waiter
// behind has judged how the entry ended.
func (e *entry) remove(ctx context.Context) error {
	e.leaving = true
	if e.stage < created {
		e.finish()
		return nil
	}
	err := e.retry(ctx, e.tryRemove)
	unknown := e.removing
	switch {
	case err == nil || errors.Is(err, ErrEntryGone):
		e.finish()
		return err
	case e.of.lease.Lost() != nil:
		e.abandon()
	case etcderr.Classify(err) == etcderr.LeaseGone:
		e.q.host.LeaseGone(ctx, e.of.lease, clientv3.NoLease, err)
		e.finish()
		return err
	default: // etcd refuses it
		e.Log().Error("holdfast: etcd refuses to remove an entry; the session retries until the lease ends",
			"error", err)
		e.q.host.Telemetry().Sweeping(e.q.At.Kind)
		e.q.host.Go(e.removeInBackground) // ends with the lease
	}
	if unknown && !errors.Is(err, holdfast.ErrOutcomeUnknown) {
		return fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
	}
	return err
}

// removeInBackground keeps removing an entry that etcd refuses to remove. A permission that was withdrawn may be
// granted again.
func (e *entry) removeInBackground(context.Context) {
	ctx := e.of.lease.Context()
	for calls.Sleep(ctx, calls.Jittered(removeRetry)) {
		err := e.retry(ctx, e.tryRemove)
		if err == nil || errors.Is(err, ErrEntryGone) {
			e.Log().Info("holdfast: removed the entry that etcd had refused to remove")
			e.finish()
			return
		}
	}
	e.abandon()
}

// abandon finishes an entry whose lease is lost. If etcd may still have the lease, the entry stays registered, and
// beforeRevoke removes it.
func (e *entry) abandon() {
	if cause := e.of.lease.Lost().Cause; cause == holdfast.CauseRevoked || cause == holdfast.CauseClusterChanged {
		e.finish()
	}
}
