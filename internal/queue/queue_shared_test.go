package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

func TestCloseRemovesHeldAndWaitingEntriesWithoutALockDelay(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b, c := holdtest.Start(t, srv), holdtest.Start(t, srv), holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, a.Queue("x"))
		waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), b.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		last := holdtest.AcquireLater(kit.Within(t, time.Minute), c.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 3)
		began := time.Now()
		holdtest.MustClose(t, b)
		if r := <-waiter; r.Err != holdfast.ErrClosed || r.At.Sub(began) > 4*kit.OneWay {
			t.Errorf("the waiter after %v: %v", r.At.Sub(began), r.Err)
		}
		time.Sleep(20 * kit.OneWay) // the last one watches the first
		began = time.Now()
		holdtest.MustClose(t, a)
		if err := h.Check(); err == nil {
			t.Error("the hold outlived its session")
		}
		if took := holdtest.Granted(t, srv, last).At.Sub(began); took > kit.Prompt {
			t.Errorf("the last was granted after %v", took)
		}
	})
}

// The entry stays until it expires with the lease, and the next waiter is delayed.
func TestCloseOfAWaiterBehindARevokedEntryDelaysTheNextWaiter(t *testing.T) {
	for name, wait := range map[string]time.Duration{"not heard of": kit.OneWay / 2,
		"during the lock delay": kit.LockDelay / 2} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				b, c := holdtest.Start(t, srv), holdtest.Start(t, srv)
				ahead := kit.Join(t, srv, holdtest.EntriesX)
				waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), b.Queue("x"))
				kit.Queued(t, srv, holdtest.EntriesX, 2)
				last := holdtest.AcquireLater(kit.Within(t, time.Minute), c.Queue("x"))
				kit.Queued(t, srv, holdtest.EntriesX, 3)
				ahead.Revoke()
				revoked := time.Now()
				time.Sleep(wait)
				holdtest.MustClose(t, b)
				<-waiter
				if took := holdtest.Granted(t, srv, last).At.Sub(revoked); took < kit.LockDelay {
					t.Errorf("the next waiter was granted %v after the revocation", took)
				}
			})
		})
	}
}

// Whether the entry of an unanswered put stands is not known, so Close does not delete it.
func TestCloseLeavesUnansweredEntriesToTheLease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		b, c := holdtest.Start(t, srv), holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, c.Queue("x"))
		b.PlanOne("enqueue", etcdfake.Fate{LoseReply: true, Silent: true})
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		waiter := holdtest.AcquireLater(ctx, b.Queue("x"))
		time.Sleep(2 * kit.OneWay)
		holdtest.MustClose(t, b)
		giveUp()
		<-waiter
		if kvs := srv.Keys(holdtest.EntriesX); len(kvs) != 1 || string(kvs[0].Key) != h.Key() {
			t.Errorf("entries %v, want the other session's alone", kit.KeysOf(kvs))
		}
	})
}

// The session forgets the entries of a lease that it gave up, or that was revoked.
func TestNothingIsKeptOfTheEntriesOfALostLease(t *testing.T) {
	for name, lose := range map[string]func(*etcdfake.Server, *holdtest.Process){
		"revoked": func(srv *etcdfake.Server, p *holdtest.Process) { srv.Revoke(p.Sess.Lease()) },
		"given up": func(_ *etcdfake.Server, p *holdtest.Process) {
			p.Host.Lease().Lose(holdfast.CauseExpired, nil)
		},
		"given up while etcd is away": func(_ *etcdfake.Server, p *holdtest.Process) {
			p.Link.BlackHole()
			<-p.Host.Lease().Context().Done()
			time.Sleep(15 * time.Second) // the one try to delete them is not answered
			p.Heal()
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				kit.Join(t, srv, holdtest.EntriesX)
				q := p.Queue("x")
				holdtest.MustAcquire(t, p.Queue("y"))
				done := holdtest.AcquireLater(kit.Within(t, time.Minute), q)
				kit.Queued(t, srv, holdtest.EntriesX, 2)
				lost := p.Host.Lease()
				lose(srv, p)
				time.Sleep(20 * time.Second)
				for _, e := range q.Kept(lost) {
					t.Errorf("kept: %s", e)
				}
				for _, kv := range srv.Keys("holdfast/lock/") {
					if kv.Lease == int64(lost.ID()) {
						t.Errorf("stands: %s", kv.Key)
					}
				}
				if r := <-done; r.Err == nil {
					t.Error("granted past an entry that stands")
				}
			})
		})
	}
}

func TestCloseRemovesEntriesThatTheSweeperHasFound(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		b, c := holdtest.Start(t, srv), holdtest.Start(t, srv)
		release := unansweredPut(t, b, srv)
		last := holdtest.AcquireLater(kit.Within(t, time.Minute), c.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		release()
		removed := make(chan struct{}, 100)
		b.Plan(func(kind string, n int) etcdfake.Fate {
			if kind != "remove" {
				return etcdfake.Fate{}
			}
			removed <- struct{}{}
			return etcdfake.Fate{LoseRequest: n == 1, Silent: true}
		})
		<-removed
		began := time.Now()
		holdtest.MustClose(t, b)
		if took := holdtest.Granted(t, srv, last).At.Sub(began); took > kit.Prompt {
			t.Errorf("the next waiter was granted after %v", took)
		}
	})
}

// A lost lease is revoked a while later. If Close comes before that, it must revoke the lease:
// renewals that were stuck may just have kept it alive.
func TestCloseRemovesEntriesOfALeaseThatWasLostBefore(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		holdtest.MustAcquire(t, p.Queue("x"))
		time.Sleep(6 * time.Second) // renewed at 5 s
		p.Link.BlackHole()
		lease, err := lease.Open(p.Sess).Await(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		<-lease.Context().Done()
		p.Heal()
		time.Sleep(100 * time.Millisecond)
		if err := p.Sess.Close(kit.Within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		if kvs := kit.Standing(srv, "x"); len(kvs) != 0 {
			t.Errorf("after Close: %v", kvs)
		}
	})
}
