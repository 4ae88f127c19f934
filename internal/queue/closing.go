package queue

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// closingBatch keeps one Txn under etcd's limit of 128 operations.
const closingBatch = 100

// beforeRevoke takes the entries of a lease out of etcd before the session
// revokes it: an entry that goes together with its session key would cost the
// next in the queue a lock delay. What cannot go at once, since its own lock
// delay runs or since its place is not known, goes with the lease.
//
// The attempts and holds that these entries belong to send nothing any more, as
// the lease is lost.
func (ls *lines) beforeRevoke(ctx context.Context, lease *lease.Lease) {
	for _, h := range ls.audit.under(lease) {
		_ = h.Check() // which ends it, and its contexts
	}
	for batch := range slices.Chunk(ls.keys.under(lease), closingBatch) {
		var ops []clientv3.Op
		for _, e := range batch {
			if cmps := e.mayGo(); cmps != nil {
				ops = append(ops, clientv3.OpTxn(cmps, []clientv3.Op{clientv3.OpDelete(e.key)}, nil))
			}
		}
		if len(ops) == 0 {
			continue
		}
		if _, err := ls.commits.send(ctx, txn{then: ops}); err != nil {
			return
		}
	}
	ls.keys.forget(lease)
}

// mayGo are the comparisons under which the entry may be deleted right now; nil:
// it may not.
func (e *entry) mayGo() []clientv3.Cmp {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stage == held || e.stage == placed && e.delayed() <= 0 {
		return e.mayLeave()
	}
	return nil
}
