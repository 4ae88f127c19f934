package fencing_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/fencing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func claim(token int64) fencing.Claim { return fencing.Claim{Name: "job", Token: fencing.Token(token)} }

// do runs an effect that does nothing, and reports whether it ran.
func do(t *testing.T, s fencing.Store, resource string, c fencing.Claim) (ran bool, err error) {
	t.Helper()
	err = s.Do(t.Context(), resource, c, func(context.Context) error { ran = true; return nil })
	if ran == (err != nil) {
		t.Errorf("%v on %s: ran is %v, error %v", c, resource, ran, err)
	}
	return ran, err
}

const entry = "lock/job/@/1"

func forEachWrite(t *testing.T, test func(t *testing.T, write func(context.Context, *fencing.FencedWriter) error)) {
	for name, write := range writes {
		t.Run(name, func(t *testing.T) { test(t, write) })
	}
}

// holder is a fencing.Holder whose entry is a key.
type holder struct {
	cli   *clientv3.Client
	entry string
	token fencing.Token
	check func() error // nil: always fine
}

func (h *holder) Token() fencing.Token { return h.token }

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

// limitTests are transactions at etcd's limit, and one beyond it. The test with
// etcd goes through them too, to see that etcd agrees.
var limitTests = []struct {
	name      string
	cmps      []clientv3.Cmp
	then, els []clientv3.Op
	ok        bool
}{
	{"all lists full", compares(127), puts(127), puts(127), true},
	{"comparisons", compares(128), nil, nil, false},
	{"then", nil, puts(128), nil, false},
	{"else", nil, nil, puts(128), false},
	{"nested", nil, []clientv3.Op{clientv3.OpTxn(nil, puts(126), nil)}, nil, true},
	{"nested, too many", nil, []clientv3.Op{clientv3.OpTxn(nil, puts(127), nil)}, nil, false},
	{"nested in else", compares(27), nil, []clientv3.Op{clientv3.OpTxn(nil, nil, puts(100))}, true},
	{"nested in else, too many", compares(28), nil, []clientv3.Op{clientv3.OpTxn(nil, nil, puts(100))}, false},
	{"nested twice", nil, []clientv3.Op{clientv3.OpTxn(compares(26), []clientv3.Op{clientv3.OpTxn(nil, puts(100), nil)}, nil)}, nil, true},
	{"nested twice, too many", nil, []clientv3.Op{clientv3.OpTxn(compares(27), []clientv3.Op{clientv3.OpTxn(nil, puts(100), nil)}, nil)}, nil, false},
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

func puts(n int) (ops []clientv3.Op) {
	for i := range n {
		ops = append(ops, clientv3.OpPut(fmt.Sprint("k/", i), "v"))
	}
	return ops
}

// writes are the three ways to write, for what holds of all of them. Each sets
// or deletes "k".
var writes = map[string]func(context.Context, *fencing.FencedWriter) error{
	"put": func(ctx context.Context, w *fencing.FencedWriter) error {
		_, err := w.Put(ctx, "k", "new")
		return err
	},
	"delete": func(ctx context.Context, w *fencing.FencedWriter) error {
		_, err := w.Delete(ctx, "k")
		return err
	},
	"txn": func(ctx context.Context, w *fencing.FencedWriter) error {
		_, err := w.Txn(ctx).Then(clientv3.OpPut("k", "new")).Else(clientv3.OpPut("k", "else")).Commit()
		return err
	},
}

func compares(n int) (cmps []clientv3.Cmp) {
	for i := range n {
		cmps = append(cmps, clientv3.Compare(clientv3.CreateRevision(fmt.Sprint("absent/", i)), "=", 0))
	}
	return cmps
}
