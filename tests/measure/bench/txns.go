package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

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
	// What is put again has a lease of its own.
	lease, err := cli.Grant(e.ctx, int64(ttl/time.Second))
	if err != nil {
		return nil, err
	}
	e.closers = append(e.closers, func(ctx context.Context) { _, _ = cli.Revoke(ctx, lease.ID) })
	recorder := &recordingKV{KVClient: clientv3.RetryKVClient(cli)}
	cli.KV = clientv3.NewKVFromKVClient(recorder, cli)
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

// recordingKV records the Txns that it sends.
type recordingKV struct {
	pb.KVClient

	mu   sync.Mutex // protects txns
	txns []*recordedTxn
}

// take returns what was recorded since the last call: the Txns that write, if there is one. What reads beside them,
// such as the place for OnWait, is not what a lock costs.
func (kv *recordingKV) take() (all []*recordedTxn) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	all, kv.txns = kv.txns, nil
	if slices.ContainsFunc(all, (*recordedTxn).writes) {
		all = slices.DeleteFunc(all, func(t *recordedTxn) bool { return !t.writes() })
	}
	return all
}

// recordedTxn is a Txn that was sent, and can be sent again.
type recordedTxn struct {
	kv pb.KVClient
	r  *pb.TxnRequest
}

func (t *recordedTxn) writes() bool {
	return slices.ContainsFunc(t.r.Success, func(op *pb.RequestOp) bool { return op.GetRequestRange() == nil })
}

var errRefused = errors.New("etcd has refused a recorded Txn that was sent again")

// again sends the Txn and returns the revision at which etcd has carried it out.
func (t *recordedTxn) again(ctx context.Context) (rev int64, err error) {
	resp, err := t.kv.Txn(ctx, t.r)
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
	for _, cmp := range t.r.Compare {
		if cmp.GetCreateRevision() > 0 {
			cmp.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: rev}
		}
	}
}

// onLease has the Txn put its keys on another lease.
func (t *recordedTxn) onLease(lease clientv3.LeaseID) {
	for _, op := range t.r.Success {
		if put := op.GetRequestPut(); put != nil {
			put.Lease = int64(lease)
		}
	}
}

func (kv *recordingKV) Txn(ctx context.Context, r *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	resp, err := kv.KVClient.Txn(ctx, r, opts...)
	kv.mu.Lock()
	defer kv.mu.Unlock()
	kv.txns = append(kv.txns, &recordedTxn{kv.KVClient, r})
	return resp, err
}
