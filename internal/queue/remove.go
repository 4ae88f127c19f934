package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/ahead"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
)

// removeRetry is the pause after etcd has refused to remove an entry.
const removeRetry = time.Second

// tryRemove removes the entry and its claim. It may at any time, whatever stands ahead: nothing is hidden from those
// behind. nil: the entry existed, or may have existed, and is gone. ErrEntryGone: another client had deleted it; then
// the claim is gone now. ErrRepeated: both are gone, perhaps by this session. It ends with ctx, for a caller that
// waits; remove does not.
func (e *entry) tryRemove(ctx context.Context) error {
	r, err := e.q.shared.commits.Commit(ctx, requests.Txn{
		About: e.q.At.Entries, If: []clientv3.Cmp{e.owned()}, Then: e.deletions(make([]clientv3.Op, 0, 2)),
	})
	if r.Unsent {
		return err
	}
	e.removing = err != nil && e.q.ReportUnknown("remove", err) || r.Unanswered || e.removing
	if err != nil || r.Succeeded {
		return err
	}
	stood, err := e.removeClaim(ctx)
	e.deleted = stood || e.deleted
	switch {
	case err != nil:
		return err
	case e.deleted: // by no removal of ours, which takes both
		return ErrEntryGone
	case e.removing: // by a copy of ours that was not answered
		return nil
	case e.q.host.Sender().RepeatsUnnoticed():
		return ErrRepeated
	default:
		return ErrEntryGone
	}
}

// removeClaim removes the claim of an entry that another client has deleted, or has moved. It reports whether the claim
// stood.
func (e *entry) removeClaim(ctx context.Context) (stood bool, err error) {
	if e.claim == "" {
		return false, nil
	}
	r, err := e.q.shared.commits.Commit(ctx, requests.Txn{
		If: []clientv3.Cmp{ahead.CreatedAt(e.claim, e.rev)}, Then: []clientv3.Op{clientv3.OpDelete(e.claim)},
	})
	return r.Succeeded, err
}

// stands reads what a removal of the entry would delete.
func (e *entry) stands() []clientv3.Op {
	reads := []clientv3.Op{clientv3.OpGet(e.key, clientv3.WithKeysOnly())}
	if e.claim != "" {
		reads = append(reads, clientv3.OpGet(e.claim, clientv3.WithKeysOnly()))
	}
	return reads
}

// stood reports whether some of what stands has read was there: then no removal of ours was carried out before it.
func (e *entry) stood(r requests.Reply) bool {
	for i := range r.Responses {
		if kv := r.First(i); kv != nil && kv.CreateRevision == e.rev {
			return true
		}
	}
	return false
}

// deletions adds what deletes the entry and its claim.
func (e *entry) deletions(to []clientv3.Op) []clientv3.Op {
	to = append(to, clientv3.OpDelete(e.key))
	if e.claim != "" {
		to = append(to, clientv3.OpDelete(e.claim))
	}
	return to
}

// remove removes the entry, retrying while that can help, and finishes the attempt. It returns what tryRemove does, or
// the error of the last try, joined with ErrOutcomeUnknown if a try was not answered.
//
// An entry whose create revision is unknown is left to the sweeper.
func (e *entry) remove(ctx context.Context) error {
	if e.stage < created {
		e.finish()
		return nil
	}
	err := e.retry(ctx, e.tryRemove)
	unknown := e.removing
	switch {
	case errors.Is(err, ErrEntryGone), errors.Is(err, ErrRepeated):
		e.id = "" // another client may have put something else at the key
		e.finish()
		return err
	case err == nil:
		e.finish()
		return nil
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
	for lease.Sleep(ctx, lease.Jittered(removeRetry)) {
		err := e.retry(ctx, e.tryRemove)
		if err == nil || errors.Is(err, ErrEntryGone) || errors.Is(err, ErrRepeated) {
			e.Log().Info("holdfast: removed the entry that etcd had refused to remove")
			e.finish()
			return
		}
	}
	e.abandon()
}

// abandon finishes an entry whose lease is lost. If etcd may still have the lease, the entry stays registered until the
// session has revoked that: then MinHold may have to move the entry.
func (e *entry) abandon() {
	if cause := e.of.lease.Lost().Cause; cause == holdfast.CauseRevoked || cause == holdfast.CauseClusterChanged {
		e.finish()
	}
}
