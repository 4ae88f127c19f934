package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// sweepEvery is the pause between two sweeps of an entry that could not be
// removed for good.
const sweepEvery = time.Second

// clear is remove, and where etcd refuses that (the client may not write the
// void, say) it has the session sweep instead. The refusal is the result.
func (e *entry) clear(ctx context.Context) error {
	err := e.remove(ctx)
	switch {
	case err == nil || errors.Is(err, errEntryGone):
	case ctx.Err() != nil: // the lease is lost, and takes its entries along
	default:
		e.id = "" // a sweep that is late would delete whatever entry had it next
		e.q.sess.Logger().Error("holdfast: an entry cannot be removed for good; it is deleted by key, over and over, until it can be or its lease ends",
			"queue", e.q.kind, "name", e.q.name, "key", e.key, "void", e.void, "lease", fmt.Sprintf("%x", int64(e.lease.ID())), "error", err)
		e.q.sess.Base().Telemetry().Sweeping(e.q.kind)
		e.q.sess.Base().Go(func(context.Context) { e.sweep() }) // ends with the lease
	}
	return err
}

// sweep deletes whatever stands or appears at the entry's key, until it can be
// removed for good after all, or the lease is lost and nothing can appear there
// any more. The key is this attempt's own.
func (e *entry) sweep() {
	ctx := e.lease.Context()
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		_ = e.once(ctx, func(ctx context.Context) error {
			_, err := e.q.sess.Client().Txn(ctx).Then(clientv3.OpDelete(e.key)).Commit()
			return err
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := e.once(ctx, e.remove); err == nil || errors.Is(err, errEntryGone) {
			e.q.sess.Logger().Info("holdfast: the entry that could not be removed for good has been", "queue", e.q.kind, "name", e.q.name, "key", e.key)
			return
		}
	}
}

// once gives op the time of one attempt.
func (e *entry) once(ctx context.Context, op func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.q.sess.Base().RetryPolicy().Attempt)
	defer cancel()
	return op(ctx)
}
