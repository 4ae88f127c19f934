package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// delayed fails the test unless a call held about so long after a moment.
func delayed(t *testing.T, r holdtest.Result, since time.Time, want time.Duration) {
	t.Helper()
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	if after := r.At.Sub(since); after < want || after > want+40*kit.OneWay {
		t.Errorf("it held after %v, want %v", after, want)
	}
}

// revokeUntold revokes the lease of a process that reaches no member: it is not told, and its claims stand.
func revokeUntold(srv *etcdfake.Server, p *holdtest.Process) {
	p.Link.BlackHole()
	srv.Revoke(p.Host.Lease().ID())
}

// The lease of a holder is revoked. Each caller waits for the lock delay: one that waited, and one that comes then.
func TestNoneHoldsBesideARevokedPermitBeforeTheLockDelay(t *testing.T) {
	for name, acquire := range map[string]func(ctx context.Context, q *queue.Queue) <-chan holdtest.Result{
		"Acquire": holdtest.AcquireLater,
		"TryAcquire": func(ctx context.Context, q *queue.Queue) <-chan holdtest.Result {
			done := make(chan holdtest.Result, 1)
			go func() {
				h, err := holdtest.TryAcquire(ctx, q)
				done <- holdtest.Result{H: h, Err: err, At: time.Now()}
			}()
			return done
		},
	} {
		for _, waited := range []bool{false, true} { // the holder had a turn
			t.Run(fmt.Sprintf("%s, behind one that had waited: %v", name, waited), func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					ctx := kit.Within(t, time.Minute)
					p := holdtest.Start(t, srv)
					holds := p.Permits(1, 1)
					if waited {
						first := holdtest.MustAcquire(t, holdtest.Start(t, srv).Permits(1, 1))
						next := holdtest.AcquireLater(ctx, holds)
						kit.Queued(t, srv, permitsX, 2)
						holdtest.MustRelease(t, first)
						heldNow(t, next)
					} else {
						holdtest.MustAcquire(t, holds)
					}
					q := holdtest.Start(t, srv)
					revokeUntold(srv, p)
					at := time.Now()
					r := <-acquire(ctx, q.Permits(1, 1))
					delayed(t, r, at, kit.LockDelay)
					holdtest.MustRelease(t, r.H)
				})
			})
		}
	}
}

func TestWaiterDelaysForARevokedPermitOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		p := holdtest.Start(t, srv)
		holdtest.MustAcquire(t, p.Permits(1, 1))
		first := holdtest.AcquireLater(ctx, holdtest.Start(t, srv).Permits(1, 1))
		kit.Queued(t, srv, permitsX, 2)
		second := holdtest.AcquireLater(ctx, holdtest.Start(t, srv).Permits(1, 1))
		kit.Queued(t, srv, permitsX, 3)
		revokeUntold(srv, p)
		at := time.Now()
		r := <-first
		delayed(t, r, at, kit.LockDelay)
		holdtest.MustRelease(t, r.H)
		holdtest.MustRelease(t, heldNow(t, second))
	})
}

// Those that wait have no permit: that their process dies delays no other one.
func TestDeadWaitersDelayNone(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Permits(1, 1))
		dies := holdtest.Start(t, srv)
		for range 64 {
			holdtest.AcquireLater(ctx, dies.Permits(1, 1))
		}
		kit.Queued(t, srv, permitsX, 65)
		next := holdtest.AcquireLater(ctx, holdtest.Start(t, srv).Permits(1, 1))
		kit.Queued(t, srv, permitsX, 66)
		revokeUntold(srv, dies)
		time.Sleep(20 * kit.OneWay)
		holdtest.MustRelease(t, h)
		holdtest.MustRelease(t, heldNow(t, next))
	})
}

// More claims are dead than one Txn deletes.
func TestCrashOfManyHoldersCostsOneLockDelay(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		const n = 200
		ctx := kit.Within(t, time.Minute)
		dies, p := holdtest.Start(t, srv), holdtest.Start(t, srv)
		for range n {
			holdtest.MustAcquire(t, dies.Permits(n, 1))
		}
		var all []<-chan holdtest.Result
		for range n {
			all = append(all, holdtest.AcquireLater(ctx, p.Permits(n, 1)))
		}
		kit.Queued(t, srv, permitsX, 2*n)
		revokeUntold(srv, dies)
		at := time.Now()
		for _, done := range all {
			r := <-done
			delayed(t, r, at, kit.LockDelay)
			holdtest.MustRelease(t, r.H)
		}
	})
}

// A permit is deleted by hand. Its holder, which is told, deletes the claim; one that is cut off is waited for.
func TestPermitThatIsDeletedByHandIsWaitedFor(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Permits(1, 1))
		waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Permits(1, 1))
		kit.Queued(t, srv, permitsX, 2)
		srv.Delete(h.Key())
		r := <-waiter
		if r.Err != nil || h.Check() == nil {
			t.Errorf("%v; the former holder: %v", r.Err, h.Check())
		}
		holdtest.MustRelease(t, r.H)
	})
}

// A turn that no client serves is at the front, and its lease lives.
func TestFrontThatHangsHoldsUpNone(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Permits(2, 2))
		hangs := kit.JoinAs(t, srv, turnsX, func(id clientv3.LeaseID) string {
			return fmt.Sprintf("1-%x-AAAAAAAAAAAAAAAA", int64(id))
		})
		waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Permits(2, 1))
		kit.Queued(t, srv, permitsX, 3)
		holdtest.MustRelease(t, h)
		at := time.Now()
		if r := <-waiter; r.Err != nil || r.At.Sub(at) > 5*time.Second {
			t.Errorf("it held after %v: %v", r.At.Sub(at), r.Err)
		} else {
			holdtest.MustRelease(t, r.H)
		}
		if v := srv.Keys(hangs.Key)[0].Version; v != 2 {
			t.Errorf("the turn that hangs was put %d times, want 2: it is admitted", v)
		}
	})
}

// Calls with a deadline below the delay get in at last: the session remembers since when a claim is dead.
func TestCallsWithADeadlineBelowTheDelayGetIn(t *testing.T) {
	for name, acquire := range map[string]func(ctx context.Context, q *queue.Queue) (*hold.Hold, error){
		"Acquire": func(ctx context.Context, q *queue.Queue) (*hold.Hold, error) {
			return hold.Acquire(ctx, q, hold.Request{})
		},
		"TryAcquire": holdtest.TryAcquire,
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p, q := holdtest.Start(t, srv), holdtest.Start(t, srv)
				holdtest.MustAcquire(t, p.Permits(1, 1))
				revokeUntold(srv, p)
				tries := 0
				for ; ; tries++ {
					ctx, cancel := context.WithTimeout(t.Context(), kit.LockDelay*6/10)
					h, err := acquire(ctx, q.Permits(1, 1))
					cancel()
					if err == nil {
						holdtest.MustRelease(t, h)
						break
					}
					if !errors.Is(err, context.DeadlineExceeded) || tries > 5 {
						t.Fatal(err)
					}
				}
				if tries == 0 || tries > 2 {
					t.Errorf("it got in with call %d, want the second or the third", tries+1)
				}
			})
		})
	}
}
