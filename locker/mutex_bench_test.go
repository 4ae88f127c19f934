package locker_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// ownAllocations bounds what Lock and Unlock of a free lock allocate beyond the two
// Txns that they send: 69 as this is written, 81 with the oldest OpenTelemetry that
// go.mod allows, whose instruments cannot say that nothing listens, and 4 more under the
// race detector. 26 of them are made by internal/requests, which can send a request
// again, 14 for contexts that end with the lease, 7 for a span that is not collected.
const ownAllocations = 86

func TestLockAndUnlockAllocateLittleBeyondTheirRPCs(t *testing.T) {
	srv := etcdfake.New(etcdfake.Options{})
	defer srv.Close()
	cli := srv.Client(t)
	sess := open(t, cli, session.Options{TTL: 600 * time.Second})
	mu := locker.NewMutex(sess, "x")
	ctx := kit.Within(t, time.Minute)

	lockAndUnlock := func() {
		lk, err := mu.Lock(ctx)
		if err == nil {
			err = lk.Unlock(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	whole := testing.AllocsPerRun(200, lockAndUnlock)
	for range 2 { // in one of the runs a busy machine may repeat requests, or poll
		whole = min(whole, testing.AllocsPerRun(200, lockAndUnlock))
	}

	bare := testing.AllocsPerRun(200, func() {
		if err := bareTxns(ctx, cli, "bare", sess.Lease()); err != nil {
			t.Fatal(err)
		}
	})
	if own := whole - bare; bare == 0 || own > ownAllocations {
		t.Errorf("Lock and Unlock allocate %v times, %v of them beyond their RPCs; want at most %v",
			whole, own, ownAllocations)
	} else {
		t.Logf("%v allocations, %v of them beyond the RPCs", whole, own)
	}
}

// bareTxns sends the two Txns that Lock and Unlock of a free lock are, made by
// hand.
func bareTxns(ctx context.Context, cli *clientv3.Client, name string, lease clientv3.LeaseID) error {
	prefix := name + "/@/"
	key, claim := prefix+"5eed0001-ABCDEFGHIJKLMNOP", name+"/@claim/5eed0001-ABCDEFGHIJKLMNOP"
	put, err := cli.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0),
			clientv3.Compare(clientv3.CreateRevision(claim), "=", 0),
			clientv3.Compare(clientv3.ModRevision(name+"/session"), "=", 0)).
		Then(clientv3.OpPut(key, "{}", clientv3.WithLease(lease)), clientv3.OpGet(name+"/epoch"),
			clientv3.OpPut(claim, "{}", clientv3.WithLease(lease)),
			clientv3.OpGet(prefix, append(clientv3.WithLastCreate(), clientv3.WithLimit(2), clientv3.WithKeysOnly())...)).
		Commit()
	if err != nil {
		return err
	}
	removed, err := cli.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", put.Header.Revision)).
		Then(clientv3.OpDelete(key), clientv3.OpDelete(claim)).
		Commit()
	if err == nil && !(put.Succeeded && removed.Succeeded) {
		err = errors.New("refused")
	}
	return err
}

// BenchmarkFreeLockInTheClient measures what the client itself spends on the
// Lock and Unlock of a free lock, in median microseconds. Requests are answered
// without a server, which is not counted, and each answer finds the caches cold, as
// they are after a wait for etcd's disk: the same code then takes several times as
// long as in a hot loop.
//
//	go test -run '^$' -bench FreeLockInTheClient -benchtime 2000x ./locker
func BenchmarkFreeLockInTheClient(b *testing.B) {
	ctx := context.Background()
	b.Run("holdfast", func(b *testing.B) {
		cli, kv := answeredClient(b)
		sess := open(b, cli, session.Options{TTL: 600 * time.Second})
		mu := locker.NewMutex(sess, "x")
		kv.measure(b, func() error {
			lk, err := mu.Lock(ctx)
			if err != nil {
				return err
			}
			return lk.Unlock(ctx)
		})
	})
	b.Run("concurrency", func(b *testing.B) {
		cli, kv := answeredClient(b)
		sess, err := concurrency.NewSession(cli, concurrency.WithTTL(600))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = sess.Close() })
		mu := concurrency.NewMutex(sess, "x")
		kv.measure(b, func() error {
			if err := mu.Lock(ctx); err != nil {
				return err
			}
			return mu.Unlock(ctx)
		})
	})
	b.Run("txns", func(b *testing.B) {
		cli, kv := answeredClient(b)
		kv.measure(b, func() error { return bareTxns(ctx, cli, "x", clientv3.NoLease) })
	})
}

// answeredClient returns a client of an etcd in memory, and what can answer its
// Txns in its place.
//
// The client has its KV before it has a session, which may keep what it finds.
func answeredClient(b *testing.B) (*clientv3.Client, *answeredKV) {
	srv := etcdfake.New(etcdfake.Options{})
	b.Cleanup(srv.Close)
	link, kv := srv.Link(), &answeredKV{}
	cli := link.Client()
	cli.KV = clientv3.NewKVFromKVClient(&splitKV{link.KVClient(), kv}, cli)
	return cli, kv
}

// answeredKV answers that each Txn was carried out and has found nothing.
type answeredKV struct {
	pb.KVClient // nil: nothing else is sent

	revision int64 // 0: it answers nothing yet
	waited   time.Duration
	other    [8 << 20]byte // more than the caches of a core hold
}

func (kv *answeredKV) Txn(_ context.Context, r *pb.TxnRequest, _ ...grpc.CallOption) (*pb.TxnResponse, error) {
	defer kv.coolDown(time.Now())
	kv.revision++
	resp := &pb.TxnResponse{Header: &pb.ResponseHeader{Revision: kv.revision}, Succeeded: true}
	for range r.Success {
		resp.Responses = append(resp.Responses, &pb.ResponseOp{
			Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{}},
		})
	}
	return resp, nil
}

func (kv *answeredKV) DeleteRange(
	context.Context, *pb.DeleteRangeRequest, ...grpc.CallOption,
) (*pb.DeleteRangeResponse, error) {
	defer kv.coolDown(time.Now())
	kv.revision++
	return &pb.DeleteRangeResponse{Header: &pb.ResponseHeader{Revision: kv.revision}, Deleted: 1}, nil
}

// splitKV has Txns and deletions answered by another one, once the measurement has begun.
type splitKV struct {
	pb.KVClient
	by *answeredKV
}

func (kv *splitKV) Txn(ctx context.Context, r *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	if kv.by.revision == 0 {
		return kv.KVClient.Txn(ctx, r, opts...)
	}
	return kv.by.Txn(ctx, r, opts...)
}

func (kv *splitKV) DeleteRange(
	ctx context.Context, r *pb.DeleteRangeRequest, opts ...grpc.CallOption,
) (*pb.DeleteRangeResponse, error) {
	if kv.by.revision == 0 {
		return kv.KVClient.DeleteRange(ctx, r, opts...)
	}
	return kv.by.DeleteRange(ctx, r, opts...)
}

// coolDown fills the caches with other data, and counts the time since the request
// came.
func (kv *answeredKV) coolDown(since time.Time) {
	for i := 0; i < len(kv.other); i += 64 {
		kv.other[i]++
	}
	kv.waited += time.Since(since)
}

// measure has kv answer the client's requests and reports the median of what op
// takes without them.
func (kv *answeredKV) measure(b *testing.B, op func() error) {
	kv.revision = 1 << 20
	took := make([]time.Duration, 0, b.N)
	b.ReportAllocs()
	runtime.GC()
	for b.Loop() {
		kv.waited = 0
		began := time.Now()
		if err := op(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began)-kv.waited)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "client-µs/op")
}
