package locker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
)

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
		"by another client": func(_ *testing.T, _ *kit.Process, _ *locker.Lock) {},
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
				_, err := etcdfence.NewWriter(lk).Put(t.Context(), "data", "late")
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
				if _, err := etcdfence.NewWriter(lk).Put(t.Context(), "data", "late"); !errors.Is(err, fencing.ErrStale) {
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

// An administrator deletes the entry just before it is released, so only the release reveals it. Another client may
// have held since then.
func TestReleaseOfAnEntryThatWasDeletedByHandIsALoss(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		sess := kit.Start(t, srv).Sess
		check := func(what string, err error) {
			t.Helper()
			if lost := (*holdfast.LostError)(nil); !errors.As(err, &lost) || lost.Cause != holdfast.CauseEntryDeleted {
				t.Errorf("%s: %v", what, err)
			}
		}
		mu := locker.NewMutex(sess, "x")
		lk := mustLock(t, mu)
		srv.Delete(lk.Key())
		check("Unlock", lk.Unlock(ctx))

		calls := 0
		check("Do", mu.Do(ctx, func(_ context.Context, lk *locker.Lock) error {
			calls++
			srv.Delete(lk.Key())
			return nil
		}))
		if calls != 1 {
			t.Errorf("the function of Do was called %d times", calls)
		}

		d, err := locker.NewRWMutex(sess, "y").LockDowngradable(ctx)
		if err != nil {
			t.Fatal(err)
		}
		srv.Delete(d.Key())
		_, err = d.Downgrade(ctx)
		check("Downgrade", err)
	})
}
