package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing"
)

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

func forEachWrite(t *testing.T, test func(t *testing.T, write func(context.Context, *fencing.FencedWriter) error)) {
	for name, write := range writes {
		t.Run(name, func(t *testing.T) { test(t, write) })
	}
}

// refused checks that a write failed without being sent.
func refused(t *testing.T, kv *fakeKV, err error, is ...error) {
	t.Helper()
	if err == nil || errors.Is(err, backoff.ErrOutcomeUnknown) || errors.Is(err, fencing.ErrStale) {
		t.Errorf("error is %v", err)
	}
	for _, want := range is {
		if !errors.Is(err, want) {
			t.Errorf("%v is not %v", err, want)
		}
	}
	if kv != nil && kv.sent() != 0 {
		t.Errorf("%d RPCs were sent", kv.sent())
	}
}

func TestNilHolderWritesNothing(t *testing.T) {
	cli, kv := newFake()
	for name, h := range map[string]fencing.Holder{
		"nil":           nil,
		"nil pointer":   (*holder)(nil), // what an acquisition returns that failed
		"no token":      &holder{cli: cli, entry: entry},
		"negative":      &holder{cli: cli, entry: entry, token: -1},
		"no client":     &holder{entry: entry, token: 1},
		"client of nil": &holder{cli: clientv3.NewCtxClient(t.Context()), entry: entry, token: 1},
		"no entry":      &holder{cli: cli, token: 1},
	} {
		t.Run(name, func(t *testing.T) {
			forEachWrite(t, func(t *testing.T, write func(context.Context, *fencing.FencedWriter) error) {
				w := fencing.NewFencedWriter(h)
				refused(t, kv, write(t.Context(), w), fencing.ErrNoToken)
				refused(t, kv, write(t.Context(), w.With(fencing.Options{WhileSuspended: fencing.Proceed})), fencing.ErrNoToken)
			})
		})
	}
}

type lostError struct{ cause error }

func (e *lostError) Error() string { return fmt.Sprint("lock lost: ", e.cause) }
func (e *lostError) Unwrap() error { return e.cause }

// A holder that knows that it has lost does not bother etcd, and the caller gets
// to see the session's own error.
func TestLostHolderIsRefusedWithoutAnRPC(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write func(context.Context, *fencing.FencedWriter) error) {
		for _, policy := range []fencing.WhileSuspended{fencing.Refuse, fencing.Wait, fencing.Proceed} {
			// Network errors, the end of a context among them, have a method
			// Temporary too: as causes they must not pass for "suspended".
			for _, cause := range []error{errors.New("expired"), rpctypes.ErrTimeout, context.DeadlineExceeded} {
				h, kv := holding(t)
				h.check = func() error { return fmt.Errorf("lk: %w", &lostError{cause}) }
				err := write(t.Context(), fencing.NewFencedWriter(h).With(fencing.Options{WhileSuspended: policy}))
				refused(t, kv, err, cause)
				var lost *lostError
				if !errors.As(err, &lost) {
					t.Errorf("%v hides the session's error", err)
				}
				mustSay(t, err, "token 42", "not sent")
			}
		}
	})
}

func TestDeadContextSendsNothing(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write func(context.Context, *fencing.FencedWriter) error) {
		h, kv := holding(t)
		h.check = func() error { t.Error("asked although the context has ended"); return nil }
		cause := errors.New("lock lost")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		refused(t, kv, write(ctx, fencing.NewFencedWriter(h)), context.Canceled, cause)
	})
}

// Whatever leaves the outcome open is reported as open, with its cause; and the
// writer does not try again.
func TestUnansweredWriteHasAnUnknownOutcome(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write func(context.Context, *fencing.FencedWriter) error) {
		for _, cause := range []error{
			rpctypes.ErrTimeout, rpctypes.ErrLeaderChanged, rpctypes.ErrNoLeader, rpctypes.ErrStopped,
			rpctypes.ErrNoSpace, // etcd writes and then says so
			context.DeadlineExceeded, context.Canceled,
			status.Error(codes.Unavailable, "transport is closing"),
			errors.New("never heard of"),
		} {
			h, kv := holding(t)
			kv.after = func(context.Context) error { return cause } // done, and the answer lost
			err := write(t.Context(), fencing.NewFencedWriter(h))
			if !errors.Is(err, backoff.ErrOutcomeUnknown) || !errors.Is(err, cause) || errors.Is(err, fencing.ErrStale) {
				t.Errorf("%v became %v", cause, err)
			}
			if backoff.Retryable(err) {
				t.Errorf("%v would be sent again by backoff.Retry", err)
			}
			if kv.sent() != 1 {
				t.Errorf("%v: sent %d times", cause, kv.sent())
			}
			mustSay(t, err, "token 42")
		}
	})
}

func TestEndOfContextDuringWriteIsJoinedWithItsCause(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write func(context.Context, *fencing.FencedWriter) error) {
		for name, answer := range map[string]error{
			"replaced by the context's": context.Canceled, // what clientv3 does
			"hiding the context's":      rpctypes.ErrTimeout,
		} {
			t.Run(name, func(t *testing.T) {
				h, kv := holding(t)
				cause := errors.New("lock lost")
				ctx, cancel := context.WithCancelCause(t.Context())
				kv.before = func(context.Context) error { cancel(cause); return answer }
				err := write(ctx, fencing.NewFencedWriter(h))
				for _, want := range []error{backoff.ErrOutcomeUnknown, context.Canceled, cause, answer} {
					if !errors.Is(err, want) {
						t.Errorf("%v is not %v", err, want)
					}
				}
				if n := strings.Count(err.Error(), "context canceled"); n != 1 {
					t.Errorf("%v says so %d times", err, n)
				}
			})
		}
	})
}

// What etcd refused before it acted is a failure and nothing more.
func TestRefusalByEtcdIsDefinite(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write func(context.Context, *fencing.FencedWriter) error) {
		for _, cause := range []error{
			rpctypes.ErrTooManyRequests, rpctypes.ErrPermissionDenied, rpctypes.ErrInvalidAuthToken,
			rpctypes.ErrLeaseNotFound, rpctypes.ErrDuplicateKey, rpctypes.ErrRequestTooLarge,
		} {
			h, kv := holding(t)
			kv.before = func(context.Context) error { return cause }
			err := write(t.Context(), fencing.NewFencedWriter(h))
			if !errors.Is(err, cause) || errors.Is(err, backoff.ErrOutcomeUnknown) || errors.Is(err, fencing.ErrStale) {
				t.Errorf("%v became %v", cause, err)
			}
			if kv.sent() != 1 {
				t.Errorf("%v: sent %d times", cause, kv.sent())
			}
			mustSay(t, err, "token 42")
		}
	})
}

// Only etcd's own "no" is ErrStale. An answer that cannot be one leaves open
// what happened, and must not panic.
func TestAnswerOfAnotherFormIsAnUnknownOutcome(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write func(context.Context, *fencing.FencedWriter) error) {
		for name, rewrite := range map[string]func(*clientv3.TxnResponse) *clientv3.TxnResponse{
			"nil":          func(*clientv3.TxnResponse) *clientv3.TxnResponse { return nil },
			"no responses": func(r *clientv3.TxnResponse) *clientv3.TxnResponse { r.Responses = nil; return r },
			"two responses": func(r *clientv3.TxnResponse) *clientv3.TxnResponse {
				r.Responses = append(r.Responses, r.Responses[0])
				return r
			},
			"nil response": func(r *clientv3.TxnResponse) *clientv3.TxnResponse { r.Responses[0] = nil; return r },
			"empty":        func(r *clientv3.TxnResponse) *clientv3.TxnResponse { r.Responses[0].Response = nil; return r },
		} {
			t.Run(name, func(t *testing.T) {
				h, kv := holding(t)
				kv.rewrite = rewrite
				if err := write(t.Context(), fencing.NewFencedWriter(h)); !errors.Is(err, backoff.ErrOutcomeUnknown) {
					t.Errorf("error is %v", err)
				}
			})
		}
	})
}

func TestEmptyKeyIsRefusedBeforeItIsSent(t *testing.T) {
	h, kv := holding(t)
	w := fencing.NewFencedWriter(h)
	_, err := w.Put(t.Context(), "", "v")
	refused(t, kv, err, fencing.ErrEmptyKey)
	_, err = w.Delete(t.Context(), "")
	refused(t, kv, err, fencing.ErrEmptyKey)
	_, err = w.Delete(t.Context(), "", clientv3.WithPrefix()) // all of etcd, the lock included
	refused(t, kv, err, fencing.ErrEmptyKey)
	for name, txn := range map[string]clientv3.Txn{
		"if":     w.Txn(t.Context()).If(clientv3.Compare(clientv3.Version(""), "=", 0)),
		"cmp{}":  w.Txn(t.Context()).If(clientv3.Cmp{}),
		"then":   w.Txn(t.Context()).Then(clientv3.OpGet("a"), clientv3.OpPut("", "v")),
		"else":   w.Txn(t.Context()).Else(clientv3.OpDelete("")),
		"nested": w.Txn(t.Context()).Then(clientv3.OpTxn(nil, nil, []clientv3.Op{clientv3.OpGet("")})),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := txn.Commit()
			refused(t, kv, err, fencing.ErrEmptyKey)
		})
	}
}

func TestWriterIsSharedByGoroutines(t *testing.T) {
	h, kv := holding(t)
	w := fencing.NewFencedWriter(h)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				key := fmt.Sprintf("k/%d/%d", g, i)
				if _, err := w.Put(t.Context(), key, "v"); err != nil {
					t.Error(err)
				}
				if _, err := w.Txn(t.Context()).Then(clientv3.OpDelete(key)).Commit(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if kv.sent() != 800 {
		t.Errorf("%d RPCs for 800 writes", kv.sent())
	}
}

func TestWithLeavesTheOriginalAlone(t *testing.T) {
	h, kv := holding(t)
	h.check = func() error { return errSuspended }
	w := fencing.NewFencedWriter(h)
	bold := w.With(fencing.Options{WhileSuspended: fencing.Proceed})
	_, err := w.Put(t.Context(), "k", "v")
	refused(t, kv, err, errSuspended)
	if _, err := bold.Put(t.Context(), "k", "v"); err != nil {
		t.Error(err)
	}
	if _, err := bold.With(fencing.Options{}).Put(t.Context(), "k", "v"); !errors.Is(err, errSuspended) {
		t.Errorf("options were added up instead of replaced: %v", err)
	}
}

func TestMistakesInATransactionComeBackFromCommit(t *testing.T) {
	h, kv := holding(t)
	cmp, op := clientv3.Compare(clientv3.CreateRevision("k"), "=", 0), clientv3.OpPut("k", "v")
	for name, build := range map[string]func(clientv3.Txn) clientv3.Txn{
		"If twice":        func(t clientv3.Txn) clientv3.Txn { return t.If(cmp).If(cmp) },
		"Then twice":      func(t clientv3.Txn) clientv3.Txn { return t.Then(op).Then(op) },
		"Else twice":      func(t clientv3.Txn) clientv3.Txn { return t.Else(op).Else(op) },
		"If after Then":   func(t clientv3.Txn) clientv3.Txn { return t.Then(op).If(cmp) },
		"If after Else":   func(t clientv3.Txn) clientv3.Txn { return t.Else(op).If(cmp) },
		"Then after Else": func(t clientv3.Txn) clientv3.Txn { return t.Else(op).Then(op) },
		"no operation":    func(t clientv3.Txn) clientv3.Txn { return t.Then(clientv3.Op{}) },
	} {
		t.Run(name, func(t *testing.T) {
			txn := build(fencing.NewFencedWriter(h).Txn(t.Context()))
			for range 2 {
				_, err := txn.Commit()
				refused(t, kv, err, fencing.ErrTxnMisuse)
			}
		})
	}
}

// With clientv3 a second Commit is a second transaction.
func TestTransactionIsCommittedOnce(t *testing.T) {
	h, kv := holding(t)
	txn := fencing.NewFencedWriter(h).Txn(t.Context()).Then(clientv3.OpPut("k", "v"))
	if _, err := txn.Commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := txn.Commit(); !errors.Is(err, fencing.ErrTxnMisuse) || kv.sent() != 1 {
		t.Errorf("second Commit: %v; %d RPCs", err, kv.sent())
	}
	txn.Then(clientv3.OpPut("k", "w"))
	if _, err := txn.Commit(); !errors.Is(err, fencing.ErrTxnMisuse) || kv.sent() != 1 {
		t.Errorf("third Commit: %v; %d RPCs", err, kv.sent())
	}
}

// What the caller does to its slices between If and Commit must not change what
// is compared or written.
func TestTransactionCopiesItsArguments(t *testing.T) {
	h, kv := holding(t)
	cmps := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision("absent"), "=", 0)}
	then := []clientv3.Op{clientv3.OpPut("k", "v")}
	txn := fencing.NewFencedWriter(h).Txn(t.Context()).If(cmps...).Then(then...)
	cmps[0].WithKeyBytes([]byte(entry))
	then[0] = clientv3.OpPut("other", "v")
	if resp, err := txn.Commit(); err != nil || !resp.Succeeded {
		t.Errorf("%v, %v", resp, err)
	}
	if _, ok := kv.get("k"); !ok {
		t.Error("the transaction wrote something else")
	}
}

func puts(n int) (ops []clientv3.Op) {
	for i := range n {
		ops = append(ops, clientv3.OpPut(fmt.Sprint("k/", i), "v"))
	}
	return ops
}

func compares(n int) (cmps []clientv3.Cmp) {
	for i := range n {
		cmps = append(cmps, clientv3.Compare(clientv3.CreateRevision(fmt.Sprint("absent/", i)), "=", 0))
	}
	return cmps
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

func TestTooManyOperationsAreRefusedBeforeTheyAreSent(t *testing.T) {
	if fencing.MaxOps != 127 {
		t.Errorf("MaxOps is %d", fencing.MaxOps)
	}
	for _, c := range limitTests {
		t.Run(c.name, func(t *testing.T) {
			h, kv := holding(t)
			_, err := fencing.NewFencedWriter(h).Txn(t.Context()).If(c.cmps...).Then(c.then...).Else(c.els...).Commit()
			if c.ok {
				if err != nil {
					t.Error(err)
				}
				return
			}
			refused(t, kv, err, fencing.ErrTooManyOps)
		})
	}
}

// TestWireForm pins what is sent: one transaction that compares first of all.
func TestWireForm(t *testing.T) {
	h, _ := holding(t)
	var sent []*fakeTxn
	h.cli.KV = recorder{h.cli.KV, &sent}
	w := fencing.NewFencedWriter(h)
	for _, write := range []func() error{
		func() error { _, err := w.Put(t.Context(), "k", "v", clientv3.WithLease(7)); return err },
		func() error { _, err := w.Delete(t.Context(), "k", clientv3.WithRange("l")); return err },
		func() error {
			_, err := w.Txn(t.Context()).If(compares(2)...).Then(puts(3)...).Else(puts(4)...).Commit()
			return err
		},
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	for i, txn := range sent {
		if len(txn.cmps) != 1 || len(txn.then) != 1 || len(txn.els) != 0 || string(txn.cmps[0].KeyBytes()) != entry {
			t.Errorf("write %d is If(%d) Then(%d) Else(%d)", i, len(txn.cmps), len(txn.then), len(txn.els))
		}
	}
	if op := sent[0].then[0]; !op.IsPut() || string(op.KeyBytes()) != "k" || string(op.ValueBytes()) != "v" {
		t.Error("Put does not put what it was given")
	}
	if op := sent[1].then[0]; !op.IsDelete() || !slices.Equal(op.RangeBytes(), []byte("l")) {
		t.Error("Delete does not delete what it was given")
	}
	if cmps, then, els := sent[2].then[0].Txn(); len(cmps) != 2 || len(then) != 3 || len(els) != 4 {
		t.Error("Txn is not passed on whole")
	}
}

type recorder struct {
	clientv3.KV
	sent *[]*fakeTxn
}

func (r recorder) Txn(ctx context.Context) clientv3.Txn {
	txn := r.KV.Txn(ctx).(*fakeTxn)
	*r.sent = append(*r.sent, txn)
	return txn
}

func ExampleFencedWriter() {
	cli, kv := newFake() // in a program: the client of lk's session
	lk := &holder{cli: cli, entry: entry, token: fencing.Token(kv.set(entry, ""))}

	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	w := fencing.NewFencedWriter(lk)
	_, err := w.Put(ctx, "jobs/7/state", "running")
	fmt.Println("put:", err)

	// This process is paused, its lease expires, somebody else gets the lock,
	// and then it goes on.
	kv.remove(entry)
	_, err = w.Put(ctx, "jobs/7/state", "done")
	fmt.Println("put:", err)
	fmt.Println("stale:", errors.Is(err, fencing.ErrStale))
	// Output:
	// put: <nil>
	// put: fencing: write to "jobs/7/state" refused: token 1 is stale: its holder's entry is gone
	// stale: true
}

func ExampleFencedWriter_Txn() {
	cli, kv := newFake()
	lk := &holder{cli: cli, entry: entry, token: fencing.Token(kv.set(entry, ""))}

	resp, err := fencing.NewFencedWriter(lk).Txn(context.Background()).
		If(clientv3.Compare(clientv3.CreateRevision("jobs/7/done"), "=", 0)).
		Then(clientv3.OpPut("jobs/7/done", "true")).
		Else(clientv3.OpGet("jobs/7/done")).
		Commit()
	fmt.Println(resp.Succeeded, err) // of one's own comparison: the fence either held or is the error
	// Output: true <nil>
}
