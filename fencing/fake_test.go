package fencing_test

import (
	"bytes"
	"context"
	"reflect"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/fencing"
)

// fakeKV is as much of an etcd as a fence needs: keys with their revisions and
// transactions that compare create revisions. Tests run against it where the
// answer has to be a certain one, or time has to be virtual; what etcd does is
// tested with etcd.
type fakeKV struct {
	clientv3.KV // nil: any other call is a bug of the package under test

	mu      sync.Mutex
	rev     int64
	keys    map[string]*mvccpb.KeyValue
	commits int

	// before, if set, is called for each transaction; its error is the answer,
	// with nothing done. after likewise, with everything done.
	before, after func(ctx context.Context) error

	// rewrite, if set, changes the answer.
	rewrite func(*clientv3.TxnResponse) *clientv3.TxnResponse
}

func newFake() (*clientv3.Client, *fakeKV) {
	kv := &fakeKV{keys: make(map[string]*mvccpb.KeyValue)}
	cli := clientv3.NewCtxClient(context.Background())
	cli.KV = kv
	return cli, kv
}

func (f *fakeKV) Txn(ctx context.Context) clientv3.Txn { return &fakeTxn{kv: f, ctx: ctx} }

// set puts a key as another client would, and returns its create revision.
func (f *fakeKV) set(key, val string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rev++
	return f.put([]byte(key), []byte(val)).CreateRevision
}

func (f *fakeKV) remove(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rev++
	delete(f.keys, key)
}

func (f *fakeKV) get(key string) (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kv, ok := f.keys[key]
	if !ok {
		return "", false
	}
	return string(kv.Value), true
}

func (f *fakeKV) sent() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.commits
}

func (f *fakeKV) put(key, val []byte) *mvccpb.KeyValue {
	kv := &mvccpb.KeyValue{Key: key, Value: val, CreateRevision: f.rev, ModRevision: f.rev}
	if old := f.keys[string(key)]; old != nil {
		kv.CreateRevision = old.CreateRevision
	}
	f.keys[string(key)] = kv
	return kv
}

type fakeTxn struct {
	kv        *fakeKV
	ctx       context.Context
	cmps      []clientv3.Cmp
	then, els []clientv3.Op
}

func (t *fakeTxn) If(cs ...clientv3.Cmp) clientv3.Txn   { t.cmps = cs; return t }
func (t *fakeTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.then = ops; return t }
func (t *fakeTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.els = ops; return t }

func (t *fakeTxn) Commit() (*clientv3.TxnResponse, error) {
	f := t.kv
	f.mu.Lock()
	f.commits++
	f.mu.Unlock()
	if f.before != nil {
		if err := f.before(t.ctx); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	f.rev++
	resp := (*clientv3.TxnResponse)(f.apply(t.cmps, t.then, t.els))
	resp.Header = &etcdserverpb.ResponseHeader{ClusterId: 1, MemberId: 2, RaftTerm: 3, Revision: f.rev}
	f.mu.Unlock()
	if f.after != nil {
		if err := f.after(t.ctx); err != nil {
			return nil, err
		}
	}
	if f.rewrite != nil {
		resp = f.rewrite(resp)
	}
	return resp, nil
}

// apply leaves the headers of inner responses as empty as etcd does.
func (f *fakeKV) apply(cmps []clientv3.Cmp, then, els []clientv3.Op) *etcdserverpb.TxnResponse {
	resp := &etcdserverpb.TxnResponse{Header: &etcdserverpb.ResponseHeader{}, Succeeded: true}
	ops := then
	for i := range cmps {
		c := compareIn(&cmps[i])
		if c.Target != etcdserverpb.Compare_CREATE || c.Result != etcdserverpb.Compare_EQUAL {
			panic("fakeKV compares create revisions for equality and nothing else")
		}
		var created int64
		if kv := f.keys[string(c.Key)]; kv != nil {
			created = kv.CreateRevision
		}
		if created != c.GetCreateRevision() {
			resp.Succeeded, ops = false, els
			break
		}
	}
	for _, op := range ops {
		resp.Responses = append(resp.Responses, f.do(op))
	}
	return resp
}

// compareIn is what a Cmp holds: in etcd's client 3.7 a pointer to it, in 3.6 it is the Cmp itself.
func compareIn(c *clientv3.Cmp) *etcdserverpb.Compare {
	v := reflect.ValueOf(c)
	if field := v.Elem().FieldByName("c"); field.IsValid() {
		v = field
	}
	return (*etcdserverpb.Compare)(v.UnsafePointer())
}

// wantsPrevKV is Op.IsPrevKV, which is new in 3.7.
func wantsPrevKV(op clientv3.Op) bool { return reflect.ValueOf(op).FieldByName("prevKV").Bool() }

func (f *fakeKV) do(op clientv3.Op) *etcdserverpb.ResponseOp {
	header := &etcdserverpb.ResponseHeader{Revision: f.rev}
	var hit []*mvccpb.KeyValue
	for key, kv := range f.keys {
		if key == string(op.KeyBytes()) ||
			key > string(op.KeyBytes()) && bytes.Compare([]byte(key), op.RangeBytes()) < 0 {
			hit = append(hit, kv)
		}
	}
	switch {
	case op.IsTxn():
		return &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseTxn{ResponseTxn: f.apply(op.Txn())}}
	case op.IsPut():
		f.put(op.KeyBytes(), op.ValueBytes())
		resp := &etcdserverpb.PutResponse{Header: header}
		if wantsPrevKV(op) && len(hit) > 0 {
			resp.PrevKv = hit[0]
		}
		return &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponsePut{ResponsePut: resp}}
	case op.IsDelete():
		for _, kv := range hit {
			delete(f.keys, string(kv.Key))
		}
		resp := &etcdserverpb.DeleteRangeResponse{Header: header, Deleted: int64(len(hit))}
		if wantsPrevKV(op) {
			resp.PrevKvs = hit
		}
		return &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: resp}}
	default:
		resp := &etcdserverpb.RangeResponse{Header: header, Kvs: hit, Count: int64(len(hit))}
		return &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: resp}}
	}
}

// holder is a fencing.Holder whose entry is a key.
type holder struct {
	cli   *clientv3.Client
	entry string
	token fencing.Token
	check func() error // nil: always fine
}

func (h *holder) Token() fencing.Token     { return h.token }
func (h *holder) Client() *clientv3.Client { return h.cli }

func (h *holder) Check() error {
	if h.check == nil {
		return nil
	}
	return h.check()
}

func (h *holder) IsOwner() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(h.entry), "=", h.token.Revision())
}

const entry = "lock/job/@/1"

// holding returns a holder whose entry stands in a fake.
func holding(t *testing.T) (*holder, *fakeKV) {
	t.Helper()
	cli, kv := newFake()
	kv.rev = 41
	return &holder{cli: cli, entry: entry, token: fencing.Token(kv.set(entry, ""))}, kv
}

// mustSay checks that an error names what an operator needs to find the write.
func mustSay(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}
