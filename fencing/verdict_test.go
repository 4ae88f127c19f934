package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/fence"
)

func TestVerdictPromisesNothingThatIsNotKnown(t *testing.T) {
	plain := errors.New("driver: bad connection")
	below := &fencing.MarkError{Resource: "r", Claim: claim(5), Mark: 7}
	for name, c := range map[string]struct {
		err  error
		want fence.Verdict
	}{
		"nil":                                  {nil, fence.Done},
		"stale":                                {fmt.Errorf("write: %w", below), fence.Stale},
		"other lock":                           {&fencing.OtherNameError{}, fence.OtherName},
		"bad claim":                            {&fencing.ClaimError{Part: "token"}, fence.BadClaim},
		"token of zero":                        {claim(0).Validate(), fence.BadClaim},
		"epoch step":                           {claim(1<<62).CheckMark("r", fencing.Claim{}), fence.BadClaim},
		"no claim":                             {fencing.ErrNoToken, fence.NoClaim},
		"full":                                 {fmt.Errorf("store: %w", fencing.ErrFull), fence.NothingDone},
		"not done":                             {fencing.NotDone(plain), fence.NothingDone},
		"not done, wrapped":                    {fmt.Errorf("a: %w", fencing.NotDone(plain)), fence.NothingDone},
		"each of a join not done":              {errors.Join(fencing.NotDone(plain), fencing.ErrFull), fence.NothingDone},
		"one of a join not done":               {errors.Join(fencing.NotDone(plain), plain), fence.OutcomeUnknown},
		"unknown":                              {fmt.Errorf("commit: %w: %w", holdfast.ErrOutcomeUnknown, plain), fence.OutcomeUnknown},
		"unknown, and stale":                   {errors.Join(below, holdfast.ErrOutcomeUnknown), fence.OutcomeUnknown},
		"unknown, marked as not done":          {fencing.NotDone(holdfast.ErrOutcomeUnknown), fence.OutcomeUnknown},
		"of a driver":                          {plain, fence.OutcomeUnknown},
		"deadline":                             {context.DeadlineExceeded, fence.OutcomeUnknown},
		"of a service that the handler called": {status.Error(codes.Unavailable, "down"), fence.OutcomeUnknown},
		"of etcd, not through a guard":         {status.Error(codes.PermissionDenied, "no"), fence.OutcomeUnknown},
	} {
		if got := fence.VerdictOf(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if c.err != nil && c.want == fence.NothingDone && !errors.Is(c.err, fencing.ErrNotDone) {
			t.Errorf("%s: errors.Is does not find it", name)
		}
	}
	if fencing.NotDone(nil) != nil {
		t.Error("NotDone(nil) is an error")
	}
}

// Where the guards themselves know that nothing was done, they say so.
func TestGuardsSayThatNothingWasDone(t *testing.T) {
	srv := etcdfake.New(nil)
	defer srv.Close()
	link := srv.Link()
	m, err := fencing.NewEtcdMarks(link.Client(), nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(ctx context.Context) error {
		_, err := m.Commit(ctx, "r", claim(5), clientv3.OpPut("k", "v"))
		return err
	}
	full := fencing.NewMemoryStore(&fencing.MemoryStoreOptions{MaxMarks: 1})
	if _, err := do(t, full, "r", claim(5)); err != nil {
		t.Fatal(err)
	}
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	h, kv := holding(t)
	suspended := &holder{cli: h.cli, entry: h.entry, token: h.token, check: func() error { return errors.New("suspended") }}
	kv.before = func(context.Context) error {
		return status.Error(codes.PermissionDenied, "etcdserver: permission denied")
	}
	put := func(ctx context.Context, h fencing.Holder) error {
		_, err := fencing.NewFencedWriter(h).Put(ctx, "k", "v")
		return err
	}
	effect := func(context.Context) error { return nil }
	for name, c := range map[string]struct {
		err  error
		want fence.Verdict
	}{
		"memory, full":                     {full.Do(t.Context(), "other", claim(5), effect), fence.NothingDone},
		"memory, context ended":            {full.Do(dead, "r", claim(5), effect), fence.NothingDone},
		"commit, context ended":            {write(dead), fence.NothingDone},
		"admit, context ended":             {m.Admit(dead, "r", claim(5)), fence.NothingDone},
		"writer, context ended":            {put(dead, h), fence.NothingDone},
		"writer, holder suspended":         {put(t.Context(), suspended), fence.NothingDone},
		"writer, permission denied":        {put(t.Context(), h), fence.NothingDone},
		"the effect's own error, whatever": {full.Do(t.Context(), "r", claim(5), func(ctx context.Context) error { return context.Canceled }), fence.OutcomeUnknown},
	} {
		if got := fence.VerdictOf(c.err); got != c.want {
			t.Errorf("%s: %v of %v, want %v", name, got, c.err, c.want)
		}
	}
	kv.before, kv.after = nil, func(context.Context) error { return status.Error(codes.Unavailable, "gone") }
	if err := put(t.Context(), h); fence.VerdictOf(err) != fence.OutcomeUnknown {
		t.Errorf("writer, unanswered: %v", err)
	}
	link.LoseReply("Txn", 1, codes.Unavailable)
	if err := write(t.Context()); fence.VerdictOf(err) != fence.OutcomeUnknown {
		t.Errorf("commit, unanswered: %v", err)
	}
}
