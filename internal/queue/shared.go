package queue

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/txns"
	"github.com/holdfast-go/holdfast/internal/watching"
)

// shared is what all queues of one session have in common.
type shared struct {
	host      lease.Host
	lockDelay time.Duration
	getEpoch  clientv3.Op // reads the fencing epoch

	warnedOfSlash atomic.Bool // not a sync.Once: the user's logger may make a queue

	mu    sync.Mutex        // protects lines and the fields of each line
	lines map[lineKey]*line // only those with a head

	keys    keys
	commits txns.Committer
	streams watching.Streams
	poll    poller
	sweeper sweeper
	orphans orphanScanner
}

type sharedKey struct{}

func sharedBy(host lease.Host) *shared {
	return host.Extension(sharedKey{}, func() any {
		s := &shared{
			host: host, lockDelay: host.LockDelay(), getEpoch: clientv3.OpGet(host.EpochKey()),
			lines: make(map[lineKey]*line),
			keys:  newKeys(), commits: txns.Committer{Sender: host.Sender(), Go: host.Go}, poll: newPoller(host),
			sweeper: newSweeper(host), orphans: newOrphanScanner(host),
		}
		s.sweeper.keys = &s.keys
		host.BeforeRevoke(s.beforeRevoke)
		return s
	}).(*shared)
}

// beforeRevoke deletes the entries of a lease before the session revokes it. An entry deleted together with its session
// key looks like that of a revoked holder, and would cost the waiter behind it a lock delay.
//
// An entry that MinHold keeps is moved instead. One that may not be deleted now, because its own lock delay runs or its
// place is unknown, expires with the lease. The lease is lost, so no attempt and no hold uses these entries.
func (s *shared) beforeRevoke(ctx context.Context, lease *lease.Lease) {
	s.poll.endHolds(lease) // before its entry goes: no work may believe that it still holds
	for batch := range slices.Chunk(s.moveTaken(ctx, s.keys.of(lease)), maxOps) {
		var ops []clientv3.Op
		for _, e := range batch {
			if cmps := e.removableNow(); cmps != nil {
				ops = append(ops, clientv3.OpTxn(cmps, []clientv3.Op{clientv3.OpDelete(e.key)}, nil))
			}
		}
		if len(ops) == 0 {
			continue
		}
		if _, err := s.commits.Commit(ctx, txns.Txn{Then: ops}); err != nil {
			return // the entries expire with the lease
		}
	}
	s.keys.forget(lease)
}

// maxOps keeps a Txn below etcd's default limit of 128 operations.
const maxOps = 100
