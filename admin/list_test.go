package admin_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdfake"
)

func TestListHasEachNameOnceWithItsHolder(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		for _, name := range []string{"a", "a-b", "a/1", "a/b", "a0", "b"} {
			queueUp(t, name, a, b)
		}
		for i := range 6000 { // two pages of one name
			srv.Put(fmt.Sprintf("holdfast/lock/big/@/%x-AAAAAAAAAAAAAAAA", 0xffff-i), "")
		}
		for prefix, want := range map[string]string{
			// In the order of the keys: "-" and "1" are before "@", "b" is after it.
			"":      "a-b by a +1, a/1 by a +1, a by a +1, a/b by a +1, a0 by a +1, b by a +1, big by  +5999",
			"a":     "a-b by a +1, a/1 by a +1, a by a +1, a/b by a +1, a0 by a +1",
			"a/":    "a/1 by a +1, a/b by a +1",
			"other": "",
		} {
			var got []string
			for s, err := range adm.List(t.Context(), holdfast.KindLock, prefix) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintf("%s by %s +%d", s.Name, s.Holder.Owner, s.Waiting))
				if s.Name == "big" && !strings.Contains(s.Holder.Key, "ffff-") {
					t.Errorf("the holder of big is %v, which is not its oldest entry", s.Holder.Key)
				}
			}
			if strings.Join(got, ", ") != want {
				t.Errorf("list %q: %v, want %v", prefix, got, want)
			}
		}
	})
}

// A dashboard lists what a fleet holds: however many names that are, one page of them is in memory. With 1,000,000
// names it takes 7 s: 200 requests, 1.3 MiB of live memory.
func TestListHoldsOnePageInMemory(t *testing.T) {
	const names, most = 20_000, 4 << 20
	srv := etcdfake.New(etcdfake.Options{})
	defer srv.Close()
	cli := srv.Client(t)
	kv := &manyNames{KV: cli.KV, names: names}
	cli.KV = kv
	live := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, largest, got := live(), int64(0), 0
	for s, err := range admin.New(cli, admin.Options{}).List(t.Context(), holdfast.KindLock, "") {
		if err != nil {
			t.Fatal(err)
		}
		if s.Name != manyName(got) || s.Holder.Owner != "worker-"+strconv.Itoa(got) {
			t.Fatalf("name %d is %q, held by %q", got, s.Name, s.Holder.Owner)
		}
		if got++; got%8_000 == 4_321 {
			largest = max(largest, live()-before)
		}
	}
	if got != names || largest > most || kv.largest != 5000 {
		t.Errorf("%d names, pages of %d, %d bytes of live memory, want %d, 5000 and at most %d",
			got, kv.largest, largest, names, most)
	}
	t.Logf("%d names, %d KiB of live memory", got, largest>>10)
}

// manyNames answers reads of lock entries as a store with that many held locks does, and makes them as they are read.
type manyNames struct {
	clientv3.KV
	names int

	mu      sync.Mutex // protects largest: a request that takes long is sent again
	largest int        // page
}

func manyName(i int) string { return fmt.Sprintf("job/%07d", i) }

func (kv *manyNames) Txn(context.Context) clientv3.Txn { return &manyNamesTxn{kv: kv} }

type manyNamesTxn struct {
	clientv3.Txn
	kv   *manyNames
	then []clientv3.Op
}

func (txn *manyNamesTxn) If(...clientv3.Cmp) clientv3.Txn { return txn }

func (txn *manyNamesTxn) Else(...clientv3.Op) clientv3.Txn { return txn }

func (txn *manyNamesTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	txn.then = ops
	return txn
}

func (txn *manyNamesTxn) Commit() (*clientv3.TxnResponse, error) {
	op := txn.then[0]
	first := 0
	if from, ok := strings.CutPrefix(string(op.KeyBytes()), "holdfast/lock/job/"); ok {
		number, _, _ := strings.Cut(from, "/")
		last, err := strconv.Atoi(number)
		if err != nil {
			return nil, err
		}
		first = last + 1
	}
	limit := int(op.Limit())
	txn.kv.mu.Lock()
	txn.kv.largest = max(txn.kv.largest, limit)
	txn.kv.mu.Unlock()
	page := &pb.RangeResponse{More: first+limit < txn.kv.names, Count: int64(txn.kv.names - first)}
	for i := first; i < min(first+limit, txn.kv.names); i++ {
		page.Kvs = append(page.Kvs, &mvccpb.KeyValue{
			Key:            fmt.Appendf(nil, "holdfast/lock/%s/@/694d-AAAAAAAAAAAAAAAA", manyName(i)),
			Value:          fmt.Appendf(nil, `{"v":2,"owner":"worker-%d","queued_at":"2026-01-31T12:00:00Z"}`, i),
			CreateRevision: int64(i + 1), ModRevision: int64(i + 1), Lease: 0x694d,
		})
	}
	return &clientv3.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: true, Responses: []*pb.ResponseOp{
		{Response: &pb.ResponseOp_ResponseRange{ResponseRange: page}},
	}}, nil
}
