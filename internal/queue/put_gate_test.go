package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

func TestCopyThatArrivesAfterTheSessionKeyWasPutAgainDoesNothing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		p.PlanAll("enqueue", etcdfake.Fate{Request: 10 * time.Second})
		_, err := hold.Acquire(kit.Within(t, 50*time.Millisecond), p.Queue("x"), hold.Request{})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if n := p.GateMoves(srv); n != 1 {
			t.Errorf("the session key was put again %d times, want once", n)
		}
		time.Sleep(10 * time.Second)
		if n := kit.PutsEver(srv, holdtest.EntriesX); n != 0 {
			t.Error("the late copy has put an entry")
		}
	})
}

func TestAttemptInFlightWhenTheGateMovesGetsIn(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		p.PlanOne("enqueue", etcdfake.Fate{Request: 100 * time.Millisecond})
		done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
		time.Sleep(kit.OneWay)
		if _, err := p.Host.PutSessionKey(t.Context(), p.Host.Lease()); err != nil { // as the sweeper does
			t.Fatal(err)
		}
		began := time.Now()
		holdtest.Granted(t, srv, done)
		if took := time.Since(began); took > 100*time.Millisecond+8*kit.OneWay {
			t.Errorf("granted after %v, want no pause after a refusal by the gate", took)
		}
		if n := p.Counts()["enqueue"]; n != 2 {
			t.Errorf("%d puts were sent, want 2", n)
		}
	})
}

func TestAttemptInFlightWhenTheSessionKeyIsDeletedByHandGetsIn(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		// The session's watch is told late, so the attempt finds no key.
		p.Plan(func(kind string, n int) etcdfake.Fate {
			if kind == "event" {
				return etcdfake.Fate{Reply: 100 * time.Millisecond}
			}
			return etcdfake.Fate{}
		})
		srv.Delete(p.SessionKey())
		holdtest.Granted(t, srv, holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x")))
		if n := p.Counts()["enqueue"]; n < 2 {
			t.Errorf("%d puts were sent: none was refused", n)
		}
		if err := p.Sess.Check(); err != nil {
			t.Error(err)
		}
	})
}

// A store that was restored from a backup may have the session key at an older revision than
// the session knows.
func TestSessionKeyOfAnOlderRevisionIsReadWithPauses(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		lease := p.Host.Lease()
		lease.NoteGate(lease.Gate() + 1000)
		p.Plan(nil)
		_, err := hold.Acquire(kit.Within(t, 5*time.Second), p.Queue("x"), hold.Request{})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if n := p.Counts()["enqueue"]; n < 2 || n > 40 {
			t.Errorf("%d puts in 5 s", n)
		}
	})
}

// Another client puts the session key again, as it is. That moves the gate, so it refuses what is under way: once, and
// then that gets in.
func TestSessionKeyPutEachSecondDelaysAnAcquisitionByTwoRequests(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		q, key, admin := p.Queue("x"), p.SessionKey(), srv.Client(t)
		holdtest.MustRelease(t, holdtest.MustAcquire(t, q))
		const rings = 20
		p.Plan(nil)
		done := make(chan bool)
		go func() { // joined below
			defer close(done)
			for range rings {
				time.Sleep(time.Second)
				_, err := admin.Txn(t.Context()).If(clientv3.Compare(clientv3.CreateRevision(key), ">", 0)).
					Then(clientv3.OpPut(key, "", clientv3.WithIgnoreValue(), clientv3.WithIgnoreLease())).Commit()
				if err != nil {
					t.Error(err)
				}
			}
		}()
		acquired, slowest, lease := 0, time.Duration(0), p.Sess.Lease()
		for ringing := true; ringing; acquired++ {
			began := time.Now()
			h := holdtest.MustAcquire(t, q)
			slowest = max(slowest, time.Since(began))
			holdtest.MustRelease(t, h)
			select {
			case <-done:
				ringing = false
			default:
			}
		}
		if slowest != 6*kit.OneWay { // refused, the new gate read, and sent again
			t.Errorf("the slowest acquisition took %v", slowest)
		}
		if n := p.Counts()["enqueue"]; n > acquired+rings || n <= acquired {
			t.Errorf("%d requests to queue for %d acquisitions and %d rings", n, acquired, rings)
		}
		if kv := srv.Keys(key); len(kv) != 1 || kv[0].Lease != int64(lease) || p.Sess.Lease() != lease {
			t.Errorf("the session key is %v, the lease %x, before %x", kv, p.Sess.Lease(), lease)
		}
	})
}
