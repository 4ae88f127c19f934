package locker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/locker"
)

// Scenario 11.
func TestConcurrentUnlocksSendOneRelease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		lk := mustLock(t, locker.NewMutex(p.Sess, "x"))
		synctest.Wait()
		before := p.Link.Count()["Txn"]
		var ended sync.WaitGroup
		for range 30 {
			ended.Go(func() {
				_, _, _ = lk.Token(), lk.Check(), lk.IsOwner()
				if err := lk.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		ended.Wait()
		if n := p.Link.Count()["Txn"] - before; n != 1 {
			t.Errorf("%d Txns for one release", n)
		}
	})
}

// Scenario 15. A process is stopped for longer than its TTL, another acquires,
// the process goes on: its first Check says lost, although no timer of its own
// has had a chance to; what it writes is refused by etcd, too.
func TestHolderStoppedPastItsTTLIsLostAtTheFirstCheck(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		granted := time.Now() // a's Grant is sent
		a, b := kit.Start(t, srv), kit.Start(t, srv)
		lk := mustLock(t, locker.NewMutex(a.Sess, "x"))
		waiter := lockLater(t.Context(), locker.NewMutex(b.Sess, "x"))
		time.Sleep(time.Until(granted.Add(12 * time.Second))) // renewed twice
		a.Stop()
		r := <-waiter
		if r.err != nil {
			t.Fatal(r.err)
		}
		// etcd counts from when the renewal arrived; then the event, the read that judges, and the
		// lock delay.
		if at := time.Since(granted); at != 2*a.Renewal+kit.TTL+kit.LockDelay+4*kit.OneWay {
			t.Errorf("the waiter holds after %v, want the TTL after the second renewal, and the lock delay", at)
		}
		time.Sleep(15 * time.Second)
		a.Resume()
		var lost *holdfast.LostError
		if err := lk.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseExpired || lost.Since < 30*time.Second {
			t.Errorf("first Check: %v", err)
		}
		if r.lk.Token() <= lk.Token() || !owns(srv, r.lk) {
			t.Errorf("token %v after %v, entries %v", r.lk.Token(), lk.Token(), kit.Standing(srv, "x"))
		}
		if _, err := fencing.NewFencedWriter(lk).Put(t.Context(), "data", "late"); !errors.As(err, &lost) {
			t.Errorf("guarded write: %v", err)
		}
		// The same from between a Check and a write, where only etcd can refuse.
		resp, err := a.Link.Client().Txn(t.Context()).If(lk.IsOwner()).Commit()
		if err != nil || resp.Succeeded {
			t.Errorf("IsOwner in a Txn: %v, %v", resp, err)
		}
		time.Sleep(time.Second)
		if err := lk.Check(); !errors.Is(err, holdfast.ErrLost) || a.Sess.Check() != nil {
			t.Errorf("afterwards: lock %v, session %v", err, a.Sess.Check())
		}
		if got := a.States(); !slices.Equal(got, []holdfast.State{holdfast.Lost, holdfast.Connected}) &&
			!slices.Equal(got, []holdfast.State{holdfast.Suspended, holdfast.Lost, holdfast.Connected}) {
			t.Errorf("events %v", got)
		}
	})
}

// Scenario 16. A process is stopped for less than its TTL: it still holds, by
// the same token. How long it is trusted is exact: a stop that ends just in
// time for a renewal to be confirmed loses nothing.
func TestHolderStoppedForLessThanItsTTLStillHolds(t *testing.T) {
	// A renewal is one message and one read, sent at the same time.
	const confirm = 2 * kit.OneWay
	again := []holdfast.State{holdfast.Suspended, holdfast.Connected}
	lost := []holdfast.State{holdfast.Suspended, holdfast.Lost, holdfast.Connected}
	for name, c := range map[string]struct {
		until  time.Duration // since the last renewal before the stop
		events []holdfast.State
	}{
		"between two renewals":                  {4 * time.Second, nil},
		"past a renewal":                        {kit.Trust/2 - confirm - time.Millisecond, nil},
		"just too long to stay connected":       {kit.Trust/2 - confirm + time.Millisecond, again},
		"past the suspension":                   {10 * time.Second, again},
		"until just in time for a renewal":      {kit.Trust - confirm - time.Millisecond, again},
		"until just too late for one, and lost": {kit.Trust - confirm + time.Millisecond, lost},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				begin := time.Now()
				a := kit.Start(t, srv)
				lk := mustLock(t, locker.NewMutex(a.Sess, "x"))
				at := func(d time.Duration) { time.Sleep(time.Until(begin.Add(d))) }
				at(12 * time.Second) // renewed twice
				a.Stop()
				at(2*a.Renewal + c.until)
				a.Resume()
				synctest.Wait()
				// Nothing is confirmed yet: what is said now is by the clock.
				overdue := c.until >= kit.Trust/2
				if err := lk.Check(); overdue != errors.Is(err, holdfast.ErrSuspended) || !overdue && err != nil {
					t.Errorf("first Check: %v", err)
				}
				time.Sleep(2*confirm + 4*kit.OneWay) // for a renewal, or for a new lease and its session key
				gone := slices.Contains(c.events, holdfast.Lost)
				if gone != errors.Is(lk.Check(), holdfast.ErrLost) || !gone && (lk.Check() != nil || !owns(srv, lk)) {
					t.Errorf("Check %v, token %v, entries %v", lk.Check(), lk.Token(), kit.Standing(srv, "x"))
				}
				if got := a.States(); !slices.Equal(got, c.events) {
					t.Errorf("events %v, want %v", got, c.events)
				}
			})
		})
	}
}

// Scenario 25. The machine sleeps for longer than the TTL: Go's timers have
// stood still, the injected clock has not, and neither has etcd.
func TestHolderOnAMachineThatSleptPastTheTTLIsLostAtTheFirstCheck(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a := kit.Start(t, srv)
		lk := mustLock(t, locker.NewMutex(a.Sess, "x"))
		a.Suspend(14 * time.Second) // no time passes in the bubble, no timer fires
		var lost *holdfast.LostError
		if err := lk.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseExpired || lost.Name != "x" {
			t.Errorf("first Check: %v", err)
		}
		select {
		case <-lk.Done():
		default:
			t.Error("Done is open though Check has said lost")
		}
	})
}

// noticed waits until a lock has ended and returns its loss, and how long it took.
func noticed(t *testing.T, lk *locker.Lock) (lost *holdfast.LostError, after time.Duration) {
	t.Helper()
	begin := time.Now()
	select {
	case <-lk.Done():
	case <-time.After(time.Minute):
		t.Fatal("never noticed")
	}
	if !errors.As(lk.Check(), &lost) {
		t.Fatalf("Check: %v", lk.Check())
	}
	return lost, time.Since(begin)
}

// Scenario 22. An administrator deletes the entry of a holder and puts the same
// key again, lease and all: that is another entry, and the lock is lost.
func TestEntryDeletedAndPutAgainIsALoss(t *testing.T) {
	for name, again := range map[string]func(t *testing.T, p *kit.Process, lk *locker.Lock){
		"by somebody else": func(_ *testing.T, _ *kit.Process, _ *locker.Lock) {},
		"with its lease": func(t *testing.T, p *kit.Process, lk *locker.Lock) {
			if _, err := p.Link.Client().Put(t.Context(), lk.Key(), "again", clientv3.WithLease(lk.Lease())); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				a := kit.Start(t, srv)
				lk := mustLock(t, locker.NewMutex(a.Sess, "x"))
				time.Sleep(3 * time.Second)
				srv.Delete(lk.Key())
				srv.Put(lk.Key(), "again")
				again(t, a, lk)
				_, err := fencing.NewFencedWriter(lk).Put(t.Context(), "data", "late")
				if !errors.Is(err, fencing.ErrStale) && !errors.Is(err, holdfast.ErrLost) {
					t.Errorf("guarded write: %v", err)
				}
				if lost, after := noticed(t, lk); lost.Cause != holdfast.CauseEntryDeleted || after > 2*time.Second {
					t.Errorf("after %v: %v", after, lost)
				}
			})
		})
	}
}

// etcd's refusal is the proof that the entry is gone: the audit need not find it.
func TestRefusedWriteEndsTheLockAtOnce(t *testing.T) {
	for name, remove := range map[string]func(srv *etcdfake.Server, lk *locker.Lock){
		"deleted": func(srv *etcdfake.Server, lk *locker.Lock) { srv.Delete(lk.Key()) },
		"revoked": func(srv *etcdfake.Server, lk *locker.Lock) { srv.Revoke(lk.Lease()) },
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := kit.Start(t, srv)
				lk := mustLock(t, locker.NewMutex(p.Sess, "x"))
				ctx, cancel := lk.WithContext(context.Background())
				defer cancel()
				remove(srv, lk)
				if _, err := fencing.NewFencedWriter(lk).Put(t.Context(), "data", "late"); !errors.Is(err, fencing.ErrStale) {
					t.Errorf("fenced write: %v", err)
				}
				if err := lk.Check(); !errors.Is(err, holdfast.ErrLost) || !errors.Is(context.Cause(ctx), holdfast.ErrLost) {
					t.Errorf("after the refusal: Check %v, context %v", err, context.Cause(ctx))
				}
				if name == "revoked" {
					time.Sleep(20 * kit.OneWay)
					if states := fmt.Sprint(p.States()); !strings.Contains(states, "lost") {
						t.Errorf("the session of the revoked lease: %v", states)
					}
				}
			})
		})
	}
}

// The lease may have been revoked before Unlock was called, and nothing says
// that it was not.
func TestUnlockThatIsUnansweredWhenItsLeaseIsRevokedReportsTheLoss(t *testing.T) {
	for name, patience := range map[string]time.Duration{
		"it waits for the answer": time.Minute, "its context ends": 6 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := kit.Start(t, srv)
				mu := locker.NewMutex(p.Sess, "x")
				unanswered := func(lk *locker.Lock) {
					p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
						_, txn := c.Request.(*pb.TxnRequest)
						return etcdfake.Fate{LoseRequest: txn, Silent: true}
					})
					time.AfterFunc(time.Second, func() { srv.Revoke(lk.Lease()) }) // a renewal tells, at 5 s at the latest
				}
				expectLoss := func(what string, err error) {
					t.Helper()
					var lost *holdfast.LostError
					if !errors.As(err, &lost) || lost.Cause != holdfast.CauseRevoked || errors.Is(err, holdfast.ErrOutcomeUnknown) {
						t.Errorf("%s: %v", what, err)
					}
				}
				lk := mustLock(t, mu)
				unanswered(lk)
				expectLoss("Unlock", lk.Unlock(kit.Within(t, patience)))
				if err := lk.Check(); err != holdfast.ErrReleased {
					t.Errorf("Check: %v", err)
				}
				p.Heal()
				expectLoss("Do", mu.Do(kit.Within(t, patience), func(_ context.Context, lk *locker.Lock) error {
					unanswered(lk)
					return nil
				}))
			})
		})
	}
}

// tag is an auditor, and a value of contexts, that can be told from all others:
// what keeps something of one acquisition keeps its tag.
type tag struct {
	n int64
	_ *int // without a pointer Go may put several tags into one block and free them together
}

func (*tag) Audit(context.Context, audit.Record) {}

// A session lives for as long as its process. Whatever becomes of a lock, when it
// is over the session must not remember it: no map, no context that hangs on the
// lease, no goroutine.
func TestNothingRemainsOfALockThatIsOver(t *testing.T) {
	type try struct {
		ctx context.Context // ends with the try
		mu  *locker.Mutex
	}
	const patience = 30 * time.Second
	for name, end := range map[string]func(t *testing.T, srv *etcdfake.Server, p *kit.Process, a try){
		"unlocked": func(t *testing.T, _ *etcdfake.Server, _ *kit.Process, a try) {
			lk, err := a.mu.Lock(a.ctx)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := lk.WithContext(a.ctx)
			defer cancel()
			if err := errors.Join(context.Cause(ctx), lk.Unlock(a.ctx), lk.Unlock(a.ctx)); err != nil {
				t.Error(err)
			}
		},
		"done": func(t *testing.T, _ *etcdfake.Server, _ *kit.Process, a try) {
			if err := a.mu.Do(a.ctx, func(context.Context, *locker.Lock) error { return nil }); err != nil {
				t.Error(err)
			}
		},
		"refused": func(t *testing.T, _ *etcdfake.Server, p *kit.Process, a try) {
			lk := mustLock(t, locker.NewMutex(p.Sess, a.mu.Name()))
			if _, err := a.mu.TryLock(a.ctx); !errors.Is(err, locker.ErrLocked) {
				t.Error(err)
			}
			if err := lk.Unlock(a.ctx); err != nil {
				t.Error(err)
			}
		},
		"given up in line": func(t *testing.T, _ *etcdfake.Server, p *kit.Process, a try) {
			lk := mustLock(t, locker.NewMutex(p.Sess, a.mu.Name()))
			ctx, cancel := context.WithTimeout(a.ctx, time.Second)
			defer cancel()
			if _, err := a.mu.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if err := lk.Unlock(a.ctx); err != nil {
				t.Error(err)
			}
		},
		"given up in the queue": func(t *testing.T, srv *etcdfake.Server, _ *kit.Process, a try) {
			srv.Put("holdfast/lock/"+a.mu.Name()+"/@/other", "")
			ctx, cancel := context.WithTimeout(a.ctx, time.Second)
			defer cancel()
			if _, err := a.mu.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			srv.Delete("holdfast/lock/" + a.mu.Name() + "/@/other")
		},
		"handed over": func(t *testing.T, _ *etcdfake.Server, p *kit.Process, a try) {
			lk := mustLock(t, a.mu)
			next := lockLater(a.ctx, a.mu)
			time.Sleep(time.Second)
			if err := lk.Unlock(a.ctx); err != nil {
				t.Error(err)
			}
			if err := (<-next).lk.Unlock(a.ctx); err != nil {
				t.Error(err)
			}
		},
		"held too long": func(t *testing.T, _ *etcdfake.Server, _ *kit.Process, a try) {
			<-mustLock(t, a.mu).Done() // after MaxHold
		},
		"lost": func(t *testing.T, srv *etcdfake.Server, _ *kit.Process, a try) {
			lk := mustLock(t, a.mu)
			time.Sleep(2 * time.Second)
			srv.Delete(lk.Key())
			<-lk.Done()
		},
		"acquired with a reply lost": func(t *testing.T, _ *etcdfake.Server, p *kit.Process, a try) {
			p.Link.LoseReply("Txn", 1, 0)
			if err := mustLock(t, a.mu).Unlock(a.ctx); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := kit.Start(t, srv)
				mustLock(t, locker.NewMutex(p.Sess, "another")) // so that something remains
				time.Sleep(3 * time.Second)
				running := runtime.NumGoroutine()
				var tags []weak.Pointer[tag]
				for n := range 4 {
					mark := &tag{n: int64(n)}
					tags = append(tags, weak.Make(mark))
					ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), tag{}, mark), patience)
					opts := locker.Options{Auditor: mark, CancelOnSuspended: true, MaxHold: 10 * time.Minute}
					end(t, srv, p, try{ctx, locker.NewMutex(p.Sess, "x").With(opts)})
					cancel()
				}
				time.Sleep(2 * patience) // timers that were stopped are let go of only when they are due
				synctest.Wait()
				runtime.GC()
				if kept := slices.IndexFunc(tags, func(w weak.Pointer[tag]) bool { return w.Value() != nil }); kept >= 0 {
					t.Errorf("something keeps try %d", kept)
				}
				if n := runtime.NumGoroutine(); n > running {
					t.Errorf("%d goroutines, before there were %d", n, running)
				}
				if err := p.Sess.Check(); err != nil && !errors.Is(err, holdfast.ErrSuspended) {
					t.Errorf("the session: %v", err)
				}
			})
		})
	}
}
