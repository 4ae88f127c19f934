package fencing_test

import (
	"context"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
)

func TestMain(m *testing.M) {
	beChild() // does not return in a process that a test has started
	goleak.VerifyTestMain(m)
}

// quiet is an auditor that drops its records.
var quiet = audit.Func(func(context.Context, audit.Record) {})

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

// mustSay checks that an error names what an operator needs.
func mustSay(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// holder is a fencing.Holder whose entry is a key.
type holder struct {
	cli   *clientv3.Client
	entry string
	token fencing.Token
}

func (h *holder) Name() string             { return "job" }
func (h *holder) Token() fencing.Token     { return h.token }
func (h *holder) Client() *clientv3.Client { return h.cli }
func (h *holder) Check() error             { return nil }

func (h *holder) IsOwner() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(h.entry), "=", h.token.Revision())
}

const entry = "lock/job/@/1"

type writeFunc func(ctx context.Context, w *fencing.FencedWriter) error

// writes are the kinds of write. Each sets or deletes "k".
var writes = map[string]writeFunc{
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

func forEachWrite(t *testing.T, test func(t *testing.T, write writeFunc)) {
	for name, write := range writes {
		t.Run(name, func(t *testing.T) { test(t, write) })
	}
}
