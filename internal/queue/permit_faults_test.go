package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// Whichever of them is canceled, and when: the others are served, and nothing is left.
func TestCanceledWaitersOfASemaphoreLeaveNothing(t *testing.T) {
	step := kit.OneWay / 2
	if bubble.Race {
		step = kit.OneWay // and each moment for one of them; "long" in CI tests all, without the race detector
	}
	for at := time.Duration(0); at < 40*kit.OneWay; at += step {
		for who := range 3 {
			if bubble.Race && who != int(at/step)%3 {
				continue
			}
			t.Run(fmt.Sprintf("waiter %d at %v", who, at), func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					ctx := kit.Within(t, time.Minute)
					p := holdtest.Start(t, srv)
					h := holdtest.MustAcquire(t, p.Permits(1, 1))
					var got []<-chan holdtest.Result
					var cancels []context.CancelFunc
					for range 3 {
						c, cancel := context.WithCancel(ctx)
						cancels = append(cancels, cancel)
						got = append(got, holdtest.AcquireLater(c, holdtest.Start(t, srv).Permits(1, 1)))
						time.Sleep(2 * kit.OneWay)
					}
					time.AfterFunc(at, cancels[who])
					time.Sleep(15 * kit.OneWay)
					holdtest.MustRelease(t, h)
					for i, done := range got {
						r := <-done
						switch {
						case r.Err == nil:
							holdtest.MustRelease(t, r.H)
						case i != who || !errors.Is(r.Err, context.Canceled):
							t.Errorf("waiter %d: %v", i, r.Err)
						}
					}
					for _, cancel := range cancels {
						cancel()
					}
					time.Sleep(time.Minute)
					kit.NothingStands(t, srv)
				})
			})
		}
	}
}

func TestPermitsWithLostReplies(t *testing.T) {
	for _, kind := range []string{"enqueue", "read", "watch", "hand-off", "mark", "remove"} {
		for name, fate := range map[string]etcdfake.Fate{
			"reply": holdtest.LostReply, "request": {LoseRequest: true}, "silent": holdtest.Silence,
		} {
			t.Run(kind+", "+name, func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					ctx := kit.Within(t, time.Minute)
					kit.SetLimit(t, srv, 2)
					p, q := holdtest.Start(t, srv), holdtest.Start(t, srv)
					p.PlanOne(kind, fate)
					q.PlanOne(kind, fate)
					a := holdtest.MustAcquire(t, p.Permits(2, 2))
					if a.Token() != 0 {
						t.Errorf("a permit with token %v", a.Token())
					}
					b := holdtest.AcquireLater(ctx, q.Permits(2, 1))
					time.Sleep(10 * time.Second)
					c := holdtest.AcquireLater(ctx, p.Permits(2, 2))
					time.Sleep(10 * time.Second)
					stillWaits(t, b)
					holdtest.MustRelease(t, a)
					r := <-b
					if r.Err != nil {
						t.Fatal(r.Err)
					}
					stillWaits(t, c)
					holdtest.MustRelease(t, r.H)
					if r = <-c; r.Err != nil {
						t.Fatal(r.Err)
					}
					holdtest.MustRelease(t, r.H)
					time.Sleep(time.Minute)
					kit.NothingStands(t, srv)
				})
			})
		}
	}
}

func TestWaiterOfASemaphoreWhoseTurnIsDeletedQueuesAgain(t *testing.T) {
	for name, behind := range map[string]bool{"behind another": true, "the front": false} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				ctx := kit.Within(t, time.Minute)
				h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Permits(1, 1))
				done := make(map[bool]<-chan holdtest.Result)
				for n, second := range []bool{false, true} {
					done[second] = holdtest.AcquireLater(ctx, holdtest.Start(t, srv).Permits(1, 1))
					kit.Queued(t, srv, permitsX, n+2)
				}
				own := youngestTurn(srv)
				if !behind {
					own = string(srv.Keys(turnsX)[0].Key)
					if own == youngestTurn(srv) {
						own = string(srv.Keys(turnsX)[1].Key)
					}
				}
				srv.Delete(own)
				holdtest.MustRelease(t, h)
				for _, second := range []bool{!behind, behind} { // the one whose turn was deleted comes last
					r := <-done[second]
					if r.Err != nil {
						t.Fatal(r.Err)
					}
					holdtest.MustRelease(t, r.H)
				}
				kit.NothingStands(t, srv)
			})
		})
	}
}

func TestWaiterOfASemaphoreIsNotGrantedWhileItsSessionIsSuspended(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Permits(1, 1))
		p := holdtest.Start(t, srv)
		waiter := holdtest.AcquireLater(ctx, p.Permits(1, 1))
		kit.Queued(t, srv, permitsX, 2)
		p.PlanAll("LeaseKeepAlive", holdtest.Silence)
		time.Sleep(kit.Trust/2 + time.Second) // suspended
		if !errors.Is(p.Sess.Check(), holdfast.ErrSuspended) {
			t.Fatal(p.Sess.Check())
		}
		holdtest.MustRelease(t, h)
		stillWaits(t, waiter)
		p.Plan(nil)
		r := <-waiter
		if r.Err != nil || r.H.Check() != nil {
			t.Fatal(r.Err)
		}
		holdtest.MustRelease(t, r.H)
	})
}

func TestPermitWhoseEntryIsDeletedOrRevokedIsLost(t *testing.T) {
	for name, lose := range map[string]func(srv *etcdfake.Server, h *hold.Hold){
		"deleted": func(srv *etcdfake.Server, h *hold.Hold) { srv.Delete(h.Key()) },
		"revoked": func(srv *etcdfake.Server, h *hold.Hold) { srv.Revoke(h.Lease()) },
	} {
		for waited := range 2 {
			t.Run(fmt.Sprintf("%s, waited %d", name, waited), func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					p := holdtest.Start(t, srv)
					done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Permits(1, 1))
					if waited > 0 {
						kit.Queued(t, srv, permitsX, 1)
						h := (<-done).H
						done = holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Permits(1, 1))
						kit.Queued(t, srv, permitsX, 2)
						holdtest.MustRelease(t, h)
					}
					h := heldNow(t, done)
					time.Sleep(5 * time.Second) // the poller finds the entry as it was put
					if err := h.Check(); err != nil {
						t.Fatal(err)
					}
					lose(srv, h)
					select {
					case <-h.Done():
					case <-time.After(2 * time.Second):
						t.Fatal("it is not told")
					}
					if err := h.Release(kit.Within(t, time.Minute)); !errors.Is(err, holdfast.ErrLost) {
						t.Error(err)
					}
				})
			})
		}
	}
}

// Its claim is all that is to be removed: the waiter leaves quietly, and its session keeps nothing of it.
func TestFrontWhoseTurnWasDeletedGivesUp(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Permits(1, 1))
		p := holdtest.Start(t, srv, func(o *session.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		first := holdtest.AcquireLater(ctx, p.Permits(1, 1))
		kit.Queued(t, srv, permitsX, 2)
		srv.Delete(string(srv.Keys(turnsX)[0].Key))
		giveUp()
		if r := <-first; !errors.Is(r.Err, context.Canceled) {
			t.Errorf("Acquire: %v", r.Err)
		}
		time.Sleep(time.Second)
		if n := p.Permits(1, 1).Used(); n != 0 || log.Len() != 0 {
			t.Errorf("%d keys are in use; logged:\n%s", n, &log)
		}
		holdtest.MustRelease(t, h)
	})
}

func TestTheCopyOfAPermitsPutThatArrivesLateIsRemoved(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		kit.SetLimit(t, srv, 1)
		p.PlanAll("enqueue", etcdfake.Fate{Request: time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := hold.Acquire(ctx, p.Permits(1, 1), hold.Request{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		p.Plan(nil)
		time.Sleep(5 * time.Minute)
		kit.NothingStands(t, srv)
	})
}
