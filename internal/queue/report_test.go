package queue

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

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// Close ends every hold. It waits for their records, because the process may end after it.
func TestCloseWaitsUntilTheLossesItCausesAreRecorded(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		recorded := make(chan audit.Record, 10)
		slow := Request{Auditor: audit.Func(func(_ context.Context, r audit.Record) {
			if r.Event != audit.Granted {
				time.Sleep(time.Second)
				recorded <- r
			}
		})}
		mustAcquireAs(t, p.queue("x"), slow)
		mustAcquireAs(t, p.queue("y"), slow)
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

// A lease that ends while Release waits for its reply is not worth a warning.
func TestLossDuringAReleaseIsNotLogged(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		p := start(t, srv, func(o *session.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		h := mustAcquire(t, p.queue("x"))
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
		p := start(t, srv, func(o *session.Options) { metrics = kit.CollectMetrics(o) })
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
		other := mustAcquire(t, start(t, srv).queue("x"))
		if _, err := p.queue("x").TryAcquire(t.Context(), Request{}); !errors.Is(err, ErrOccupied) {
			t.Error(err)
		}
		expect("TryAcquire", "occupied")
		if _, err := p.queue("x").Acquire(kit.Within(t, time.Second), Request{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		expect("Acquire", "canceled")
		p.KV.Refuse(denied)
		if _, err := p.set("y", "z").Acquire(t.Context(), Request{}); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Error(err)
		}
		p.KV.Refuse(nil)
		expect("a Set", "failed")
		mustRelease(t, other)
	})
}

// A record says who held: of a candidate its value, where that is all that there is.
func TestRecordSaysWhoHeld(t *testing.T) {
	t.Parallel()
	ours := layout.Value{Identity: layout.Identity{Owner: "me", Host: "db-1", PID: 7}, Queued: time.Now()}
	candidate := ours
	candidate.Data = "node-1"
	long := strings.Repeat("é", maxHolder)
	for name, c := range map[string]struct {
		value    string
		verbatim bool
		want     string
	}{
		"a lock":                     {ours.Encode(), false, `owner "me", host "db-1", pid 7`},
		"a candidate":                {candidate.Encode(), false, `node-1 (owner "me", host "db-1", pid 7)`},
		"of etcd's own kind":         {"node-1", true, "node-1"},
		"of etcd's own, in our form": {ours.Encode(), true, ours.Encode()},
		"of another form":            {"node-1", false, "node-1"},
		"a long one":                 {"x" + long, true, "x" + long[:maxHolder-2]},
	} {
		q := &Queue{at: layout.Queue{Kind: "election", Foreign: c.verbatim}}
		if got := (&Hold{entry: &entry{q: q, value: c.value}}).holder(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
