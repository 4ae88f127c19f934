package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
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
	if err == nil || errors.Is(err, holdfast.ErrOutcomeUnknown) || errors.Is(err, fencing.ErrStale) {
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
				refused(t, kv, write(t.Context(), w.With(fencing.WriterOptions{WhileSuspended: fencing.Proceed})), fencing.ErrNoToken)
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
			for _, cause := range []error{errors.New("expired"), rpctypes.ErrTimeout, context.DeadlineExceeded} {
				h, kv := holding(t)
				h.check = func() error { return fmt.Errorf("lk: %w", &lostError{cause}) }
				err := write(t.Context(), fencing.NewFencedWriter(h).With(fencing.WriterOptions{WhileSuspended: policy}))
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
	h.check = func() error { return holdfast.ErrSuspended }
	w := fencing.NewFencedWriter(h)
	bold := w.With(fencing.WriterOptions{WhileSuspended: fencing.Proceed})
	_, err := w.Put(t.Context(), "k", "v")
	refused(t, kv, err, holdfast.ErrSuspended)
	if _, err := bold.Put(t.Context(), "k", "v"); err != nil {
		t.Error(err)
	}
	if _, err := bold.With(fencing.WriterOptions{}).Put(t.Context(), "k", "v"); !errors.Is(err, holdfast.ErrSuspended) {
		t.Errorf("options were added up instead of replaced: %v", err)
	}
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
