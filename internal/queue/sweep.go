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
		e.q.sess.Logger().Error("holdfast: an entry cannot be removed for good; it is deleted by key, over and over, until its lease ends",
			"queue", e.q.kind, "name", e.q.name, "key", e.key, "void", e.void, "lease", fmt.Sprintf("%x", int64(e.lease.ID())), "error", err)
		e.q.sess.Base().Telemetry().Sweeping(e.q.kind)
		e.q.sess.Base().Go(func(context.Context) { e.sweep() }) // ends with the lease
	}
	return err
}

// sweep deletes whatever stands or appears at the entry's key, until the lease
// is lost and nothing can appear there any more. The key is this attempt's own.
func (e *entry) sweep() {
	ctx := e.lease.Context()
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		attempt, cancel := context.WithTimeout(ctx, e.q.sess.Base().RetryPolicy().Attempt)
		_, _ = e.q.sess.Client().Txn(attempt).Then(clientv3.OpDelete(e.key)).Commit()
		cancel()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
