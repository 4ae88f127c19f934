package etcdfence_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// refused checks that a write failed without being sent.
func refused(t *testing.T, kv *hooks, err error, is ...error) {
	t.Helper()
	if !errors.Is(err, fencing.ErrNotDone) || errors.Is(err, holdfast.ErrOutcomeUnknown) ||
		errors.Is(err, fencing.ErrStale) {
		t.Errorf("error is %v", err)
	}
	for _, want := range is {
		if !errors.Is(err, want) {
			t.Errorf("%v is not %v", err, want)
		}
	}
	if kv.sent() != 0 {
		t.Errorf("%d RPCs were sent", kv.sent())
	}
}

// A log has each error, and etcd takes keys of a megabyte.
func TestErrorsHaveTheBeginningOfALongKey(t *testing.T) {
	h, kv := holding(t)
	kv.etcd.Delete(entry)
	w := etcdfence.NewWriter(h).With(etcdfence.WriterOptions{Auditor: &journal{}})
	long := strings.Repeat("k", 100_000)
	_, put := w.Put(t.Context(), long, "v")
	_, del := w.Delete(t.Context(), long)
	for _, err := range []error{put, del} {
		if text := err.Error(); !errors.Is(err, fencing.ErrStale) || len(text) > 500 || !strings.Contains(text, long[:100]) {
			t.Errorf("%d bytes: %.300s", len(text), text)
		}
	}
}

func TestStaleWriteIsRefusedAndRecorded(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write writeFunc) {
		h, kv := holding(t)
		kv.etcd.put(t, "k", "old")
		kv.etcd.Delete(entry)
		var j journal
		err := write(t.Context(), etcdfence.NewWriter(h).With(etcdfence.WriterOptions{Auditor: &j}))
		if !errors.Is(err, fencing.ErrStale) || errors.Is(err, holdfast.ErrOutcomeUnknown) || etcderr.Retryable(err) {
			t.Errorf("error is %v", err)
		}
		mustSay(t, err, "token "+h.token.String(), "entry is gone")
		if got := kv.etcd.values("k"); len(got) != 1 {
			t.Errorf("k was written: %v", got)
		}
		records := j.Take()
		if len(records) != 1 {
			t.Fatalf("records %+v", records)
		}
		r := records[0]
		if r.Event != audit.Refused || r.Name != "job" || r.Key != entry || r.Token != h.token ||
			!errors.Is(r.Err, fencing.ErrStale) {
			t.Errorf("record %+v", r)
		}
	})
}

// comparing is a holder with other comparisons.
type comparing struct {
	*holder
	owned []clientv3.Cmp
}

func (c comparing) Holding() []clientv3.Cmp { return c.owned }

func TestNilHolderWritesNothing(t *testing.T) {
	live, kv := holding(t)
	cli := live.cli
	for name, h := range map[string]fencing.Holder{
		"nil":           nil,
		"nil pointer":   (*holder)(nil), // from a failed acquisition
		"no token":      &holder{cli: cli, entry: entry},
		"negative":      &holder{cli: cli, entry: entry, token: -1},
		"no client":     &holder{entry: entry, token: 1},
		"client of nil": &holder{cli: clientv3.NewCtxClient(t.Context()), entry: entry, token: 1},
		"no entry":      &holder{cli: cli, token: 1},
		"nothing owned": comparing{live, nil},
		"half an entry": comparing{live, append(live.Holding(), clientv3.Cmp{})},
	} {
		t.Run(name, func(t *testing.T) {
			forEachWrite(t, func(t *testing.T, write writeFunc) {
				w := etcdfence.NewWriter(h)
				refused(t, kv, write(t.Context(), w), holdfast.ErrNoToken)
			})
		})
	}
}

func TestLostHolderIsRefusedWithoutAnRPC(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write writeFunc) {
		for _, cause := range []error{errors.New("expired"), rpctypes.ErrTimeout, context.DeadlineExceeded} {
			h, kv := holding(t)
			h.check = func() error { return fmt.Errorf("lk: %w", &holdfast.LostError{Err: cause}) }
			err := write(t.Context(), etcdfence.NewWriter(h))
			refused(t, kv, err, holdfast.ErrLost, cause)
			mustSay(t, err, "token "+h.token.String(), "not sent")
			if strings.Contains(err.Error(), `""`) {
				t.Errorf("names an empty key: %v", err)
			}
		}
	})
}

func TestSuspendedHolderIsRefused(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write writeFunc) {
		h, kv := holding(t)
		h.check = func() error { return fmt.Errorf("lk: %w", holdfast.ErrSuspended) }
		refused(t, kv, write(t.Context(), etcdfence.NewWriter(h)), holdfast.ErrSuspended)
	})
}

// reader owns an entry and has no token.
type reader struct{ of *holder }

func (r reader) Name() string             { return r.of.Name() }
func (r reader) Check() error             { return r.of.Check() }
func (r reader) Client() *clientv3.Client { return r.of.Client() }
func (r reader) Holding() []clientv3.Cmp  { return r.of.Holding() }

func TestReadersErrorNamesNoToken(t *testing.T) {
	h, kv := holding(t)
	h.check = func() error { return &holdfast.LostError{} }
	w := etcdfence.NewWriter(reader{h})
	_, err := w.Put(t.Context(), "k", "v")
	refused(t, kv, err, holdfast.ErrLost)
	mustSay(t, err, `etcdfence: put "k" without a token: not sent: `)
}

func TestEndedContextSendsNothing(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write writeFunc) {
		h, kv := holding(t)
		h.check = func() error { t.Error("Check was called although the context has ended"); return nil }
		cause := errors.New("lock lost")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		refused(t, kv, write(ctx, etcdfence.NewWriter(h)), context.Canceled, cause)
	})
}

// With WithPrefix etcd's client takes an empty key for all keys.
func TestDeletionOfAnEmptyKeyIsRefusedBeforeItIsSent(t *testing.T) {
	h, kv := holding(t)
	for _, opts := range [][]clientv3.OpOption{nil, {clientv3.WithPrefix()}} {
		_, err := etcdfence.NewWriter(h).Delete(t.Context(), "", opts...)
		refused(t, kv, err)
		if !isArgument(err, "key") {
			t.Error(err)
		}
	}
}

func TestUnansweredWriteHasAnUnknownOutcome(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write writeFunc) {
		for _, cause := range []error{
			rpctypes.ErrTimeout, rpctypes.ErrLeaderChanged, rpctypes.ErrNoLeader, rpctypes.ErrStopped,
			rpctypes.ErrNoSpace, // etcd returns it after the write
			context.DeadlineExceeded, context.Canceled,
			status.Error(codes.Unavailable, "transport is closing"),
			errors.New("unknown to this package"),
		} {
			h, kv := holding(t)
			kv.after = func(context.Context) error { return cause } // took effect, the answer is lost
			err := write(t.Context(), etcdfence.NewWriter(h))
			if !errors.Is(err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, cause) || errors.Is(err, fencing.ErrStale) {
				t.Errorf("%v became %v", cause, err)
			}
			if etcderr.Retryable(err) {
				t.Errorf("backoff.Retry would repeat %v", err)
			}
			if kv.sent() != 1 {
				t.Errorf("%v: sent %d times", cause, kv.sent())
			}
			mustSay(t, err, "token "+h.token.String())
		}
	})
}

func TestEndOfContextDuringAWriteIsJoinedWithItsCause(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write writeFunc) {
		for name, answer := range map[string]error{
			"replaced by the context's": context.Canceled, // as clientv3 does
			"hiding the context's":      rpctypes.ErrTimeout,
		} {
			t.Run(name, func(t *testing.T) {
				h, kv := holding(t)
				cause := errors.New("lock lost")
				ctx, cancel := context.WithCancelCause(t.Context())
				kv.before = func(context.Context) error { cancel(cause); return answer }
				err := write(ctx, etcdfence.NewWriter(h))
				for _, want := range []error{holdfast.ErrOutcomeUnknown, context.Canceled, cause, answer} {
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

// A context that Do has made ends with the lock. A caller who finds ErrLost concludes that nothing was written.
func TestWriteThatALossInterruptsIsNoLoss(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write writeFunc) {
		h, kv := holding(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		kv.before = func(context.Context) error {
			cancel(&holdfast.LostError{Kind: holdfast.KindLock, Name: "x", Cause: holdfast.CauseExpired})
			return context.Canceled
		}
		err := write(ctx, etcdfence.NewWriter(h))
		if !errors.Is(err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) ||
			errors.Is(err, holdfast.ErrLost) || !strings.Contains(err.Error(), `lock "x" lost`) {
			t.Errorf("%v", err)
		}
	})
}

func TestWriteThatEtcdRejectedHadNoEffect(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write writeFunc) {
		for _, cause := range []error{
			rpctypes.ErrTooManyRequests, rpctypes.ErrPermissionDenied, rpctypes.ErrInvalidAuthToken,
			rpctypes.ErrLeaseNotFound, rpctypes.ErrDuplicateKey, rpctypes.ErrRequestTooLarge,
		} {
			h, kv := holding(t)
			kv.before = func(context.Context) error { return cause }
			err := write(t.Context(), etcdfence.NewWriter(h))
			if !errors.Is(err, cause) || !errors.Is(err, fencing.ErrNotDone) || errors.Is(err, holdfast.ErrOutcomeUnknown) ||
				errors.Is(err, fencing.ErrStale) {
				t.Errorf("%v became %v", cause, err)
			}
			if kv.sent() != 1 {
				t.Errorf("%v: sent %d times", cause, kv.sent())
			}
			mustSay(t, err, "token "+h.token.String())
		}
	})
}

// Only etcd's own refusal is ErrStale. A response that etcd cannot have sent leaves the
// outcome open, and must not panic.
func TestMalformedResponseIsAnUnknownOutcome(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write writeFunc) {
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
				if err := write(t.Context(), etcdfence.NewWriter(h)); !errors.Is(err, holdfast.ErrOutcomeUnknown) {
					t.Errorf("error is %v", err)
				}
			})
		}
	})
}

func TestWriterIsSharedByGoroutines(t *testing.T) {
	h, kv := holding(t)
	w := etcdfence.NewWriter(h)
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

func TestWithLeavesTheOriginalUnchanged(t *testing.T) {
	h, kv := holding(t)
	kv.etcd.Delete(entry)
	var j journal
	w := etcdfence.NewWriter(h).With(etcdfence.WriterOptions{Auditor: quiet})
	with := w.With(etcdfence.WriterOptions{Auditor: &j})
	for _, each := range []*etcdfence.Writer{w, with, with.With(etcdfence.WriterOptions{Auditor: quiet})} {
		if _, err := each.Put(t.Context(), "k", "v"); !errors.Is(err, fencing.ErrStale) {
			t.Error(err)
		}
	}
	if n := len(j.Take()); n != 1 {
		t.Errorf("%d records", n)
	}
}

func ExampleWriter() {
	srv := etcdfake.New(etcdfake.Options{}) // your etcd
	defer srv.Close()
	ctx := context.Background()
	sess, err := session.New(ctx, srv.Link().Client(), session.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	defer sess.Close(ctx)

	err = locker.NewMutex(sess, "jobs/7").Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
		w := etcdfence.NewWriter(lk).With(etcdfence.WriterOptions{Auditor: quiet})
		_, err := w.Put(ctx, "jobs/7/state", "running")
		fmt.Println("put:", err)

		srv.Delete(lk.Key()) // another client can acquire the lock now
		_, err = w.Put(context.Background(), "jobs/7/state", "done")
		fmt.Println("stale:", errors.Is(err, fencing.ErrStale) || errors.Is(err, holdfast.ErrLost))
		return err
	})
	fmt.Println("lost:", errors.Is(err, holdfast.ErrLost))
	// Output:
	// put: <nil>
	// stale: true
	// lost: true
}

// quiet is an auditor that drops its records.
var quiet = audit.Func(func(context.Context, audit.Record) {})
