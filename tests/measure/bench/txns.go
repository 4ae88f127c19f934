package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/view"
)

// bareTxns measures the two Txns that Lock and Unlock of a free lock send, without holdfast: those of one Lock are
// recorded, and sent again and again.
func bareTxns(e *env, freeLock setup) (op, error) {
	txns, err := record(e, freeLock, 2)
	if err != nil {
		return nil, err
	}
	put, remove := txns[0], txns[1]
	return func(timer) error {
		created, err := put.again(e.ctx)
		if err != nil {
			return err
		}
		remove.expect(created)
		_, err = remove.again(e.ctx)
		return err
	}, nil
}

// bareHandOver measures the one Txn by which a goroutine hands over to the next of its session, without holdfast. The
// session uses the first key again for the second hand-over. So what is sent again and again are two Txns in turns: one
// deletes what the other has put.
func bareHandOver(e *env) (op, error) {
	txns, err := record(e, handOverTwice, 4)
	if err != nil {
		return nil, err
	}
	put, next, other := txns[0], txns[1], txns[2]
	created, err := put.again(e.ctx)
	return func(timer) (err error) {
		next.expect(created)
		created, err = next.again(e.ctx)
		next, other = other, next
		return err
	}, err
}

// bareRead measures the read that a refused TryLock sends, without holdfast: that of one is recorded, and sent again
// and again.
func bareRead(e *env, refused setup) (op, error) {
	txns, err := record(e, refused, 1)
	if err != nil {
		return nil, err
	}
	return func(timer) error {
		_, err := txns[0].again(e.ctx)
		return err
	}, nil
}

// handOverTwice prepares an operation in which three goroutines of one session hold a lock, one after the other.
func handOverTwice(e *env) (op, error) {
	sessions, err := e.holdfastSessions(1)
	if err != nil {
		return nil, err
	}
	mu := locker.NewMutex(sessions[0], e.name)
	return func(timer) error {
		lk, err := mu.Lock(e.ctx)
		for i := 0; i < 2 && err == nil; i++ {
			lk, err = handOver(e, lk, mu)
		}
		if err != nil {
			return err
		}
		return lk.Unlock(e.ctx)
	}, nil
}

// handOver unlocks lk once another goroutine waits for it, and returns the Lock that this one gets.
func handOver(e *env, lk *locker.Lock, mu *locker.Mutex) (*locker.Lock, error) {
	queued, next := make(chan struct{}, 1), make(chan *locker.Lock, 1)
	waiting := mu.With(locker.Options{OnWait: func(view.Place) {
		select {
		case queued <- struct{}{}:
		default: // it was told before
		}
	}})
	e.spawn(func() error {
		lk, err := waiting.Lock(e.ctx)
		if err == nil {
			next <- lk
		}
		return err
	})
	if err := errors.Join(e.receive(queued), lk.Unlock(e.ctx)); err != nil {
		return nil, err
	}
	select {
	case lk := <-next:
		return lk, nil
	case <-e.ctx.Done():
		return nil, context.Cause(e.ctx)
	}
}

// record sets up a side and returns the n Txns that its operation sends by the first connection.
func record(e *env, side setup, n int) (txns []*recordedTxn, err error) {
	cli, err := e.client(0)
	if err != nil {
		return nil, err
	}
	// What is put again has a lease of its own. Every half a minute a session looks for entries on its lease that it knows
	// nothing of, and would remove these.
	lease, err := cli.Grant(e.ctx, int64(ttl/time.Second))
	if err != nil {
		return nil, err
	}
	e.closers = append(e.closers, func(ctx context.Context) { _, _ = cli.Revoke(ctx, lease.ID) })
	recorder := &recordingKV{KV: cli.KV}
	cli.KV = recorder
	run, err := side(e)
	if err != nil {
		return nil, err
	}
	for range 5 { // while etcd is slow, the session sends copies
		recorder.take()
		if err := run(&stopwatch{}); err != nil {
			return nil, err
		}
		if txns = recorder.take(); len(txns) == n {
			for _, t := range txns {
				t.onLease(lease.ID)
			}
			return txns, nil
		}
	}
	return nil, fmt.Errorf("%d Txns were recorded, not %d", len(txns), n)
}

// recordingKV records the Txns of a KV.
type recordingKV struct {
	clientv3.KV

	mu   sync.Mutex // protects txns
	txns []*recordedTxn
}

// take returns what was recorded since the last call.
func (kv *recordingKV) take() (all []*recordedTxn) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	all, kv.txns = kv.txns, nil
	return all
}

// recordedTxn is a Txn that was sent, and can be sent again.
type recordedTxn struct {
	clientv3.Txn
	kv   clientv3.KV
	cmps []clientv3.Cmp
	then []clientv3.Op
}

var errRefused = errors.New("etcd has refused a recorded Txn that was sent again")

// again sends the Txn and returns the revision at which etcd has carried it out.
func (t *recordedTxn) again(ctx context.Context) (rev int64, err error) {
	resp, err := t.kv.Txn(ctx).If(t.cmps...).Then(t.then...).Commit()
	switch {
	case err != nil:
		return 0, err
	case !resp.Succeeded:
		return 0, errRefused
	default:
		return resp.Header.Revision, nil
	}
}

// expect has a Txn that deletes an entry expect one that was created at rev.
func (t *recordedTxn) expect(rev int64) {
	for i, cmp := range t.cmps {
		if cmp.GetCompare().GetCreateRevision() > 0 {
			t.cmps[i] = clientv3.Compare(cmp, "=", rev)
		}
	}
}

// onLease has the Txn put its keys on another lease.
func (t *recordedTxn) onLease(lease clientv3.LeaseID) {
	for i := range t.then {
		if t.then[i].IsPut() {
			clientv3.WithLease(lease)(&t.then[i])
		}
	}
}

func (kv *recordingKV) Txn(ctx context.Context) clientv3.Txn {
	t := &recordedTxn{Txn: kv.KV.Txn(ctx), kv: kv.KV}
	kv.mu.Lock()
	defer kv.mu.Unlock()
	kv.txns = append(kv.txns, t)
	return t
}

func (t *recordedTxn) If(cmps ...clientv3.Cmp) clientv3.Txn {
	t.cmps, t.Txn = slices.Clone(cmps), t.Txn.If(cmps...)
	return t
}

func (t *recordedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.then, t.Txn = slices.Clone(ops), t.Txn.Then(ops...)
	return t
}

func (t *recordedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.Else(ops...)
	return t
}
