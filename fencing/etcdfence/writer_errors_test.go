package etcdfence_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/internal/fence"
)

func TestErrorsTellWhetherTheWorkWasDone(t *testing.T) {
	ctx := t.Context()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	e := newEtcd(t)
	m := e.marks(t, etcdfence.MarksOptions{})
	h, kv := holding(t)
	suspended := *h
	suspended.check = func() error { return errors.New("suspended") }
	put := func(ctx context.Context, h fencing.Holder) error {
		_, err := etcdfence.NewWriter(h).Put(ctx, "k", "v")
		return err
	}
	denied := status.Error(codes.PermissionDenied, "etcdserver: permission denied")
	for name, c := range map[string]struct {
		do   func() error
		want fence.Verdict
	}{
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
