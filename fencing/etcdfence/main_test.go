package etcdfence_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/internal/testkit/fencingtest"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

type (
	journal   = fencingtest.Journal
	writeFunc = fencingtest.Write
)

var (
	claim        = fencingtest.Claim
	newToken     = fencingtest.NewToken
	mustSay      = fencingtest.MustSay
	forEachWrite = fencingtest.ForEachWrite
)

func TestMain(m *testing.M) { leak.Main(m) }

func isArgument(err error, argument string) bool {
	var e *holdfast.ArgumentError
	return errors.As(err, &e) && e.Argument == argument
}

// etcd is a server in memory with two connections: link has faults, cli has none.
type etcd struct {
	*etcdfake.Server
	link *etcdfake.Link
	cli  *clientv3.Client
}

func newEtcd(t testing.TB) *etcd {
	srv := etcdfake.New(etcdfake.Options{})
	t.Cleanup(srv.Close)
	return &etcd{srv, srv.Link(), srv.Client(t)}
}

// marks returns marks that use the link.
func (e *etcd) marks(t *testing.T, opts etcdfence.MarksOptions) *etcdfence.Marks {
	t.Helper()
	m, err := etcdfence.NewMarks(e.link.Client(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// write puts the token at "k" if m admits it to resource "r".
func write(ctx context.Context, m *etcdfence.Marks, c fencing.Claim) error {
	_, err := m.Commit(ctx, "r", c, clientv3.OpPut("k", c.Token.String()))
	return err
}

// put writes a key without faults, and returns the revision.
func (e *etcd) put(t testing.TB, key, val string) int64 {
	t.Helper()
	resp, err := e.cli.Put(context.Background(), key, val)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Revision
}

// rpcs returns how many RPCs of each method f sends through the link, and their sum.
func (e *etcd) rpcs(f func()) (sent map[string]int, total int) {
	before := e.link.Count()
	f()
	sent = e.link.Count()
	for method, n := range before {
		sent[method] -= n
	}
	for _, n := range sent {
		total += n
	}
	return sent, total
}

// values returns all values that a key ever had.
func (e *etcd) values(key string) (values []string) {
	for _, change := range e.History(key) {
		values = append(values, string(change.Kv.Value))
	}
	return values
}

// holder is a fencing.Holder whose entry is a key.
type holder struct {
	cli   *clientv3.Client
	name  string
	entry string
	token holdfast.Token
	check func() error // nil: nil
}

func (h *holder) Name() string             { return h.name }
func (h *holder) Token() holdfast.Token    { return h.token }
func (h *holder) Client() *clientv3.Client { return h.cli }

func (h *holder) Check() error {
	if h.check == nil {
		return nil
	}
	return h.check()
}

func (h *holder) Holding() []clientv3.Cmp {
	return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(h.entry), "=", h.token.Revision())}
}

const entry = "lock/job/@/1"

// holding returns the holder of an entry in etcd, whose transactions go through hooks.
func holding(t *testing.T) (*holder, *hooks) {
	t.Helper()
	e := newEtcd(t)
	kv := &hooks{KV: e.cli.KV, etcd: e}
	cli := clientv3.NewCtxClient(context.Background())
	cli.KV = kv
	return &holder{cli: cli, name: "job", entry: entry, token: holdfast.Token(e.put(t, entry, ""))}, kv
}

// hooks is a KV that records transactions and changes what becomes of them.
type hooks struct {
	clientv3.KV
	etcd *etcd

	// before, if set, is called for each Commit; its error is returned, with nothing
	// sent. after is called after the Commit.
	before, after func(ctx context.Context) error

	// rewrite, if set, changes the response.
	rewrite func(*clientv3.TxnResponse) *clientv3.TxnResponse

	mu        sync.Mutex // protects committed
	committed []*hookedTxn
}

func (h *hooks) Txn(ctx context.Context) clientv3.Txn {
	return &hookedTxn{hooks: h, ctx: ctx, txn: h.KV.Txn(ctx)}
}

func (h *hooks) sent() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.committed)
}

type hookedTxn struct {
	hooks *hooks
	ctx   context.Context
	txn   clientv3.Txn

	cmps      []clientv3.Cmp
	then, els []clientv3.Op
}

func (t *hookedTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	t.cmps, t.txn = cs, t.txn.If(cs...)
	return t
}

func (t *hookedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.then, t.txn = ops, t.txn.Then(ops...)
	return t
}

func (t *hookedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.els, t.txn = ops, t.txn.Else(ops...)
	return t
}

func (t *hookedTxn) Commit() (*clientv3.TxnResponse, error) {
	h := t.hooks
	h.mu.Lock()
	h.committed = append(h.committed, t)
	h.mu.Unlock()
	if h.before != nil {
		if err := h.before(t.ctx); err != nil {
			return nil, err
		}
	}
	resp, err := t.txn.Commit()
	if err != nil {
		return nil, err
	}
	if h.after != nil {
		if err := h.after(t.ctx); err != nil {
			return nil, err
		}
	}
	if h.rewrite != nil {
		resp = h.rewrite(resp)
	}
	return resp, nil
}

// A Txn under holdTxns arrives after holdFor, in virtual time.
const holdFor = time.Minute

func holdTxns(c etcdfake.Call) etcdfake.Fate {
	if c.Method == "Txn" {
		return etcdfake.Fate{Request: holdFor}
	}
	return etcdfake.Fate{}
}

// passTheHold returns when what holdTxns held has arrived.
func passTheHold() {
	time.Sleep(holdFor + time.Second)
	synctest.Wait()
}
