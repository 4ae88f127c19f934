package queue

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// The place of the first one says nothing, so its error tells what it waits for. A permit at the front has others to
// wait for, and its place says who holds.
func TestErrorOfACallThatIsFirstSaysWhatItWaitsFor(t *testing.T) {
	lock := func(t *testing.T, srv *etcdfake.Server) *kit.Peer { return kit.Join(t, srv, entriesX) }
	permit := func(t *testing.T, srv *etcdfake.Server) *kit.Peer { return kit.JoinPermit(t, srv, permitsX, 1) }
	for name, c := range map[string]struct {
		queue   func(p *process) *Queue
		holder  func(t *testing.T, srv *etcdfake.Server) *kit.Peer
		suspend bool // otherwise the holder is revoked, and the call ends in its delay
		text    string
	}{
		"a lock in its delay": {
			func(p *process) *Queue { return p.queue("x") }, lock, false, "the lock delay had not passed",
		},
		"a permit in its delay": {
			func(p *process) *Queue { return p.permits(1, 1) }, permit, false, "the lock delay had not passed",
		},
		"a lock of a suspended session": {
			func(p *process) *Queue { return p.queue("x") }, nil, true, "the session was not connected",
		},
	} {
		for try, call := range map[bool]func(Set, context.Context, Request) ([]*Grant, error){
			false: Set.Acquire, true: Set.TryAcquire,
		} {
			t.Run(name, func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					p := start(t, srv)
					q := c.queue(p)
					mustHandOff(t, mustAcquire(t, q)) // that of a permit puts the limit
					if c.suspend {
						p.PlanAll("LeaseKeepAlive", etcdfake.Fate{LoseRequest: true, Silent: true})
						for p.Sess.Check() == nil {
							time.Sleep(time.Second)
						}
					} else {
						c.holder(t, srv).Revoke()
					}
					_, err := call(Set{q}, kit.Within(t, kit.LockDelay/2), Request{})
					if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), c.text) {
						t.Errorf("%v lacks %q", err, c.text)
					}
					if errors.As(err, new(*Error)) || errors.Is(err, ErrInDelay) != (try && !c.suspend) {
						t.Errorf("%v: place %v, in a delay %v", err, errors.As(err, new(*Error)), errors.Is(err, ErrInDelay))
					}
					p.Plan(nil)
				})
			})
		}
	}
}

// Nothing is known of a delay while the put is not answered.
func TestTryAcquireThatEndsBeforeItsPutIsAnsweredIsInNoDelay(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		p.PlanAll("enqueue", etcdfake.Fate{LoseRequest: true, Silent: true})
		_, err := Set{p.queue("x")}.TryAcquire(kit.Within(t, time.Second), Request{})
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrInDelay) {
			t.Errorf("TryAcquire: %v", err)
		}
		p.Plan(nil)
	})
}

// A session that stays lost has no lease to queue with. The loss says so, and is counted as one.
func TestCallOfASessionThatStaysLostFailsWithTheLoss(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var metrics kit.Metrics
		p := start(t, srv, func(o *session.Options) { o.StayLost, metrics = true, kit.CollectMetrics(o) })
		p.Host.Lease().Lose(holdfast.CauseExpired, nil)
		_, err := Set{p.queue("x")}.Acquire(kit.Within(t, time.Minute), Request{})
		if !errors.Is(err, holdfast.ErrLost) || strings.Contains(err.Error(), "had no lease") {
			t.Errorf("Acquire: %v", err)
		}
		if points := metrics.Points(t); points["acquire.duration kind=lock,outcome=lost"] != 1 {
			t.Errorf("counted %v", points)
		}
	})
}

// The limit is another one than the program names, and all permits are held. The mistake is what to tell.
func TestTryAcquireOfAFullSemaphoreTellsOfAnotherLimit(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		kit.SetLimit(t, srv, 2)
		holder := kit.JoinPermit(t, srv, permitsX, 2)
		_, err := Set{start(t, srv).permits(1, 1)}.TryAcquire(kit.Within(t, time.Minute), Request{})
		if limit := (*holdfast.LimitError)(nil); !errors.As(err, &limit) || limit.Limit != 2 || limit.Named != 1 {
			t.Errorf("TryAcquire: %v", err)
		}
		holder.Release()
	})
}

// What cannot be read is not changed.
func TestResizeThatMayNotReadTheLimitSaysSo(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		kit.SetLimit(t, srv, 1)
		p := start(t, srv)
		p.Plan(func(kind string, n int) (f etcdfake.Fate) {
			if kind == "session" && n == 1 { // of one key, as the session's own reads are
				f = denied
			}
			return f
		})
		err := NewSemaphore(p.Host, "x", 1).Resize(kit.Within(t, time.Minute), 2)
		if err == nil || string(srv.Keys(kit.LimitX)[0].Value) != "1" {
			t.Errorf("Resize: %v; the limit is %s", err, srv.Keys(kit.LimitX)[0].Value)
		}
	})
}

// The second queue of a set is as wrong as the first.
func TestSetWithABadQueueSaysSo(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		good, ctx := p.queue("x"), t.Context()
		var none context.Context
		over, cancel := context.WithCancel(ctx)
		cancel()
		for name, err := range map[string]error{
			"a bad name":       (Set{good, p.queue("")}).usable(ctx),
			"a zero value":     (Set{good, nil}).usable(ctx),
			"no context":       (Set{good}).usable(none),
			"an ended context": (Set{good}).usable(over),
		} {
			if err == nil {
				t.Errorf("%s: it can be used", name)
			}
		}
		if err := (Set{good, p.queue("y")}).usable(ctx); err != nil {
			t.Errorf("two good queues: %v", err)
		}
	})
}

// The put is refused, its entry having been put and deleted, and the caller ends meanwhile. It had a lease.
func TestCallThatEndsAsItsEntryGoesSaysWhy(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		q := p.queue("x")
		before := mustAcquire(t, q)
		mustHandOff(t, before)
		srv.Put(before.Key, "") // as a copy of the put does
		p.PlanOne("read", etcdfake.Fate{Request: 10 * kit.OneWay})
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		done := acquireErr(ctx, q)
		time.Sleep(4 * kit.OneWay)
		if n := p.Counts(); n["enqueue"] != 1 || n["read"] != 1 {
			t.Fatalf("sent %v: this tests nothing", n)
		}
		srv.Delete(before.Key)
		giveUp()
		err := <-done
		if !errors.Is(err, context.Canceled) || !errors.Is(err, ErrEntryGone) ||
			strings.Contains(err.Error(), "had no lease") {
			t.Errorf("Acquire: %v", err)
		}
	})
}
