package fencing_test

import (
	"context"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/fence"
)

func TestNotDoneKeepsTheError(t *testing.T) {
	own := errors.New("own")
	err := fencing.NotDone(own)
	if !errors.Is(err, own) || !errors.Is(err, fencing.ErrNotDone) || err.Error() != "own" {
		t.Errorf("got %v", err)
	}
	if fencing.NotDone(nil) != nil {
		t.Error("NotDone(nil) is not nil")
	}
}

func TestErrorsTellWhetherTheWorkWasDone(t *testing.T) {
	ctx := t.Context()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	effect := func(context.Context) error { return nil }
	full := fencing.NewMemoryStore(fencing.MemoryStoreOptions{MaxMarks: 1})
	if _, err := do(t, full, "r", claim(5)); err != nil {
		t.Fatal(err)
	}
	e := newEtcd(t)
	m := e.marks(t, fencing.EtcdMarksOptions{})
	h, kv := holding(t)
	suspended := *h
	suspended.check = func() error { return errors.New("suspended") }
	put := func(ctx context.Context, h fencing.Holder) error {
		_, err := fencing.NewFencedWriter(h).Put(ctx, "k", "v")
		return err
	}
	denied := status.Error(codes.PermissionDenied, "etcdserver: permission denied")
	for name, c := range map[string]struct {
		do   func() error
		want fence.Verdict
	}{
		"memory, full":          {func() error { return full.Do(ctx, "other", claim(5), effect) }, fence.NothingDone},
		"memory, context ended": {func() error { return full.Do(ended, "r", claim(5), effect) }, fence.NothingDone},
		"memory, effect's own error": {func() error {
			return full.Do(ctx, "r", claim(5), func(context.Context) error { return context.Canceled })
		}, fence.OutcomeUnknown},
		"commit, context ended":    {func() error { return write(ended, m, claim(5)) }, fence.NothingDone},
		"admit, context ended":     {func() error { return m.Admit(ended, "r", claim(5)) }, fence.NothingDone},
		"writer, context ended":    {func() error { return put(ended, h) }, fence.NothingDone},
		"writer, holder suspended": {func() error { return put(ctx, &suspended) }, fence.NothingDone},
		"writer, permission denied": {func() error {
			kv.before = func(context.Context) error { return denied }
			defer func() { kv.before = nil }()
			return put(ctx, h)
		}, fence.NothingDone},
		"writer, unanswered": {func() error {
			kv.after = func(context.Context) error { return status.Error(codes.Unavailable, "gone") }
			defer func() { kv.after = nil }()
			return put(ctx, h)
		}, fence.OutcomeUnknown},
		"commit, unanswered": {func() error {
			e.link.LoseReply("Txn", 1, codes.Unavailable)
			return write(ctx, m, claim(5))
		}, fence.OutcomeUnknown},
	} {
		if err := c.do(); fence.VerdictOf(err) != c.want {
			t.Errorf("%s: %v of %v, want %v", name, fence.VerdictOf(err), err, c.want)
		}
	}
}

// marks returns marks that use the link.
func (e *etcd) marks(t *testing.T, opts fencing.EtcdMarksOptions) *fencing.EtcdMarks {
	t.Helper()
	m, err := fencing.NewEtcdMarks(e.link.Client(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// write puts the token at "k" if m admits it to resource "r".
func write(ctx context.Context, m *fencing.EtcdMarks, c fencing.Claim) error {
	_, err := m.Commit(ctx, "r", c, clientv3.OpPut("k", c.Token.String()))
	return err
}
