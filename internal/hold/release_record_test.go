package hold_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// Close ends every hold. It waits for their records, because the process may end after it.
func TestCloseWaitsUntilTheLossesItCausesAreRecorded(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		recorded := make(chan audit.Record, 10)
		slow := hold.Request{Auditor: audit.Func(func(_ context.Context, r audit.Record) {
			if r.Event != audit.Granted {
				time.Sleep(time.Second)
				recorded <- r
			}
		})}
		holdtest.MustAcquireAs(t, p.Queue("x"), slow)
		holdtest.MustAcquireAs(t, p.Queue("y"), slow)
		if err := p.Sess.Close(kit.Within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		if len(recorded) != 2 {
			t.Fatalf("%d records when Close has returned, want 2", len(recorded))
		}
		if r := <-recorded; r.Event != audit.Lost || !errors.Is(r.Err, holdfast.ErrClosed) {
			t.Errorf("%v: %v", r.Event, r.Err)
		}
	})
}

// Close ends every hold and revokes both leases although no auditor returns. Once, two goroutines ended the holds one
// by one and called the auditors: the work under a third hold went on, and Close never returned.
func TestCloseEndsAllHoldsAlthoughAnAuditorBlocks(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		unblock := make(chan struct{})
		blocks := hold.Request{Auditor: audit.Func(func(_ context.Context, r audit.Record) {
			if r.Event == audit.Lost {
				<-unblock
			}
		})}
		var working []context.Context
		for _, name := range []string{"x", "y", "z"} {
			ctx, cancel := holdtest.MustAcquireAs(t, p.Queue(name), blocks).Context(t.Context(), false)
			defer cancel()
			working = append(working, ctx)
		}
		p.Plan(nil) // count from here
		began, closed := time.Now(), make(chan error, 1)
		go func() { closed <- p.Sess.Close(context.Background()) }() // received below
		synctest.Wait()
		for i, ctx := range working {
			if cause := context.Cause(ctx); !errors.Is(cause, holdfast.ErrClosed) {
				t.Errorf("the context of hold %d: %v", i, cause)
			}
		}
		err := <-closed
		if took := time.Since(began); !errors.As(err, new(*session.CallbackError)) || took != 5*time.Second {
			t.Errorf("Close after %v: %v", took, err)
		}
		if n := p.Counts()["LeaseRevoke"]; n != 2 {
			t.Errorf("%d revocations, want one of each lease", n)
		}
		kit.NothingStands(t, srv)
		close(unblock)
		synctest.Wait()
	})
}

// A grant waits for its auditor. What tells a loss does not, and its record follows that of the grant.
func TestLossIsToldAlthoughTheGrantIsStillBeingRecorded(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		var deleted time.Time
		records := make(chan audit.Record, 2)
		slow := audit.Func(func(_ context.Context, r audit.Record) {
			if r.Event == audit.Granted {
				deleted = time.Now()
				srv.Delete(r.Key)
				time.Sleep(20 * time.Second)
			}
			records <- r
		})
		h := holdtest.MustAcquireAs(t, p.Queue("x"), hold.Request{Auditor: slow})
		if err := h.Check(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("20 s after its entry was deleted: %v", err)
		}
		if r := <-records; r.Event != audit.Granted {
			t.Errorf("%v was recorded first", r.Event)
		}
		if r := <-records; r.Event != audit.Lost || r.At.Sub(deleted) > lease.ToldWithin(0) {
			t.Errorf("%v %v after the deletion", r.Event, r.At.Sub(deleted))
		}
		_ = h.Release(t.Context())
	})
}

// A lease that ends while Release waits for its reply is not worth a warning.
func TestLossDuringAReleaseIsNotLogged(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		p := holdtest.Start(t, srv, func(o *session.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		h := holdtest.MustAcquire(t, p.Queue("x"))
		p.Link.BlackHole()
		_ = h.Release(kit.Within(t, 20*time.Second)) // the lease is lost before
		time.Sleep(time.Second)
		synctest.Wait() // nothing is being logged
		if strings.Contains(log.String(), "msg=\"holdfast: lost\"") {
			t.Errorf("logged:\n%s", log.String())
		}
	})
}

// An operator counts by these how acquisitions end.
func TestEachAcquisitionThatGetsNoHoldIsCountedByHowItEnded(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var metrics kit.Metrics
		p := holdtest.Start(t, srv, func(o *session.Options) { metrics = kit.CollectMetrics(o) })
		expect := func(what, outcome string) {
			t.Helper()
			n := int64(0)
			for point, value := range metrics.Points(t) {
				if strings.Contains(point, "outcome="+outcome) {
					n += value
				}
			}
			if n != 1 {
				t.Errorf("%s: %d acquisitions have the outcome %q, want 1: %v", what, n, outcome, metrics.Points(t))
			}
		}
		denied := func(ops []clientv3.Op) error {
			if slices.ContainsFunc(ops, clientv3.Op.IsPut) {
				return rpctypes.ErrPermissionDenied
			}
			return nil
		}
		other := holdtest.MustAcquire(t, holdtest.Start(t, srv).Queue("x"))
		if _, err := holdtest.TryAcquire(t.Context(), p.Queue("x")); !errors.Is(err, queue.ErrOccupied) {
			t.Error(err)
		}
		expect("TryAcquire", "occupied")
		if _, err := hold.Acquire(kit.Within(t, time.Second), p.Queue("x"), hold.Request{}); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Error(err)
		}
		expect("Acquire", "canceled")
		p.KV.Refuse(denied)
		if _, err := hold.AcquireSet(t.Context(), p.Set("y", "z"), hold.Request{}); !errors.Is(err,
			rpctypes.ErrPermissionDenied) {
			t.Error(err)
		}
		p.KV.Refuse(nil)
		expect("a Set", "failed")
		holdtest.MustRelease(t, other)
	})
}

// The record of a release says for how long it was held, and why the removal failed. If etcd had ended the lease before
// it answered, that is a loss.
func TestRecordSaysHowAReleaseEnded(t *testing.T) {
	for name, c := range map[string]struct {
		lose  holdfast.Cause // while the release is not answered; 0: it is
		event audit.Event
		fails error
	}{
		"confirmed":    {0, audit.Released, nil},
		"given up":     {holdfast.CauseExpired, audit.Released, holdfast.ErrOutcomeUnknown},
		"lost by then": {holdfast.CauseRevoked, audit.Lost, holdfast.ErrLost},
	} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			p := holdtest.Start(t, srv)
			records := make(chan audit.Record, 2)
			auditor := audit.Func(func(_ context.Context, r audit.Record) { records <- r })
			h := holdtest.MustAcquireAs(t, p.Queue("x"), hold.Request{Auditor: auditor})
			<-records
			const held = 3 * time.Second
			time.Sleep(held)
			if c.lose != 0 {
				p.Link.BlackHole()
				time.AfterFunc(time.Second, func() { p.Host.Lease().Lose(c.lose, nil) })
			}
			_ = h.Release(kit.Within(t, time.Minute))
			r := <-records
			if r.Event != c.event || r.Held != held || r.TakenFor != 0 || !errors.Is(r.Err, c.fails) {
				t.Errorf("%s: %v, held for %v, taken for %v: %v", name, r.Event, r.Held, r.TakenFor, r.Err)
			}
			p.Heal()
		})
	}
}

// An operator counts by these how holds end. Only a Release that ends a hold has a span.
func TestEachHoldIsCountedByHowItEnded(t *testing.T) {
	for outcome, spans := range map[string]int{"released": 1, "lost": 0} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			var metrics kit.Metrics
			seen := tracetest.NewSpanRecorder()
			p := holdtest.Start(t, srv, func(o *session.Options) {
				metrics = kit.CollectMetrics(o)
				o.Telemetry.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(seen))
			})
			h := holdtest.MustAcquire(t, p.Queue("x"))
			if outcome == "lost" {
				h.EndStale()
			}
			for range 2 {
				_ = h.Release(t.Context())
			}
			time.Sleep(kit.Prompt) // a loss is recorded when its entry is gone
			notRelease := func(s sdktrace.ReadOnlySpan) bool { return s.Name() != "holdfast.release" }
			if ended := slices.DeleteFunc(seen.Ended(), notRelease); len(ended) != spans {
				t.Errorf("%s: %d spans of a release, want %d", outcome, len(ended), spans)
			}
			points := metrics.Points(t)
			if n := points["hold.duration kind=lock,outcome="+outcome]; n != 1 {
				t.Errorf("%s: %d holds have ended so, want 1: %v", outcome, n, points)
			}
			if n := points["held kind=lock"]; n != 0 {
				t.Errorf("%s: %d are held, want 0: %v", outcome, n, points)
			}
		})
	}
}

func TestReleaseDoesNotWaitForItsAuditor(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		slow := audit.Func(func(_ context.Context, r audit.Record) {
			if r.Event == audit.Released {
				time.Sleep(time.Second)
			}
		})
		h := holdtest.MustAcquireAs(t, holdtest.Start(t, srv).Queue("x"), hold.Request{Auditor: slow})
		began := time.Now()
		holdtest.MustRelease(t, h)
		if took := time.Since(began); took != 2*kit.OneWay {
			t.Errorf("it took %v", took)
		}
	})
}

// MinHold counts from the grant, and that of a hold which goes on after a Detach from its release.
func TestRecordSaysForHowLongTheNameStaysTaken(t *testing.T) {
	const minHold, held = time.Minute, 3 * time.Second
	for name, attached := range map[string]bool{"acquired": false, "attached": true} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			p := holdtest.Start(t, srv)
			records := make(chan audit.Record, 2)
			r := hold.Request{MinHold: minHold, Auditor: audit.Func(func(_ context.Context, r audit.Record) { records <- r })}
			var h *hold.Hold
			want := minHold
			if attached {
				h = p.MustAttach(t, holdtest.MustDetach(t, holdtest.MustAcquire(t, p.Queue("x")), time.Hour), r)
			} else {
				h = holdtest.MustAcquireAs(t, p.Queue("x"), r)
				want -= held
			}
			<-records
			time.Sleep(held)
			holdtest.MustRelease(t, h)
			if r := <-records; r.Event != audit.Released || r.TakenFor != want {
				t.Errorf("%s: %v, taken for %v, want %v", name, r.Event, r.TakenFor, want)
			}
		})
	}
}
