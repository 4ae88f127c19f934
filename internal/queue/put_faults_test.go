package queue

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// etcd refuses the put because the lease is gone, before the session has heard of that.
func TestPutThatEtcdRefusesForWantOfTheLeaseIsMadeUnderTheNext(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		q, old := p.queue("x"), p.Host.Lease()
		p.KV.Refuse(func(ops []clientv3.Op) error {
			if p.Host.Lease() == old && slices.ContainsFunc(ops, func(op clientv3.Op) bool {
				return op.IsPut() && strings.HasPrefix(string(op.KeyBytes()), entriesX)
			}) {
				return rpctypes.ErrLeaseNotFound
			}
			return nil
		})
		g := mustAcquire(t, q)
		if g.Lease == old || old.Lost() == nil {
			t.Errorf("lease %v after %v, which is lost with %v", g.Lease.ID(), old.ID(), old.Lost())
		}
		if kept := q.Kept(old); len(kept) != 0 {
			t.Errorf("kept of the old lease: %v", kept)
		}
		mustHandOff(t, g)
	})
}

// A slow disk has etcd answer each write after seconds. The session knows of all copies of a put, so it sends nothing
// more after one that was answered alone.
func TestPutThatIsAnsweredSlowlyCostsNothingMore(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		p.Link.Delay(time.Second)
		acquire := func() {
			mustHandOff(t, mustAcquire(t, p.queue("x")))
			time.Sleep(time.Minute)
		}
		acquire() // from then on the session sends no copies beside a put
		before := p.GateMoves(srv)
		p.Plan(nil)
		acquire()
		if n := p.Counts()["enqueue"]; n != 1 {
			t.Fatalf("%d puts: this tests nothing", n)
		}
		if n := p.GateMoves(srv) - before; n != 0 {
			t.Errorf("the session key was put again %d times", n)
		}
	})
}

// etcd has said that it does nothing, so no copy is under way.
func TestGateStaysAfterAPutThatIsRefused(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		q := p.queue("x")
		p.PlanOne("enqueue", denied)
		a := newAttempt(Set{q}.join(Request{}), p.Host.Lease())
		if err := a.put(t.Context()); status.Code(err) != codes.PermissionDenied {
			t.Fatal(err)
		}
		if e := a.entries[0]; e.stage != unsent {
			t.Errorf("stage %v", e.stage)
		}
		if n := p.Counts(); n["read"] != 0 { // there is nothing to find
			t.Errorf("sent %v", n)
		}
		_ = a.entries[0].HandOff()
		time.Sleep(time.Minute)
		if n := p.GateMoves(srv); n != 0 {
			t.Errorf("the session key was put again %d times", n)
		}
	})
}

// A copy of the put that the session does not know of has put the entry, and another client has deleted it, before the
// session reads why its own was refused. More copies may arrive.
func TestKeyOfAPutWhoseRefusalIsNotExplainedIsNotUsedAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		q := p.queue("x")
		before := mustAcquire(t, q)
		mustHandOff(t, before)
		srv.Put(before.Key, "") // as the copy does
		p.PlanOne("read", etcdfake.Fate{Request: 10 * kit.OneWay})
		done := acquireLater(kit.Within(t, time.Minute), q)
		time.Sleep(4 * kit.OneWay)
		if n := p.Counts(); n["enqueue"] != 1 || n["read"] != 1 {
			t.Fatalf("sent %v: this tests nothing", n)
		}
		srv.Delete(before.Key)
		g := <-done
		if g.Key == before.Key {
			t.Error("the key was used again")
		}
		mustHandOff(t, g)
	})
}

// The reply to the put of a set is lost. Each of its entries is placed before the set holds.
func TestSetWhosePutIsFoundDoneWaitsInEachQueue(t *testing.T) {
	for _, held := range []string{"x", "y"} {
		t.Run(held, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				ahead := kit.Join(t, srv, kit.Entries(held))
				p := start(t, srv)
				p.PlanOne("enqueue", etcdfake.Fate{LoseReply: true})
				done := make(chan []*Grant, 1)
				go func() { // ends with its context
					grants, _ := Set{p.queue("x"), p.queue("y")}.Acquire(kit.Within(t, time.Minute), Request{})
					done <- grants
				}()
				time.Sleep(time.Second)
				if len(done) > 0 {
					t.Fatal("it holds beside the entry ahead")
				}
				ahead.Release()
				if grants := <-done; len(grants) != 2 {
					t.Fatal("not granted")
				} else if err := RemoveNow(t.Context(), grants, nil); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The watch of the session key does not tell that it was put again. The reply to the put that this refuses does.
func TestPutLearnsTheGateFromItsRefusal(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		time.Sleep(time.Second) // its watch stands
		p.PlanAll("event", etcdfake.Fate{Reply: time.Hour})
		key := p.SessionKey()
		again := clientv3.OpPut(key, "", clientv3.WithIgnoreLease())
		if _, err := srv.Client(t).Do(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		g := mustAcquire(t, p.queue("x"))
		if took := time.Since(began); took != 6*kit.OneWay { // refused, the new gate read, and sent again
			t.Errorf("it took %v", took)
		}
		p.Plan(nil)
		mustHandOff(t, g)
	})
}

// The session finds out what became of the key. The attempt keeps its entry meanwhile, whose copies it knows.
func TestAttemptWhoseSessionKeyIsOlderThanKnownIsNotMadeAnew(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		p := start(t, srv, func(o *session.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		lease := p.Host.Lease()
		lease.NoteGate(lease.Gate() + 1000)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := (Set{p.queue("x")}).Acquire(ctx, Request{}); !errors.Is(err, errKeyGone) {
			t.Errorf("Acquire: %v", err)
		}
		if strings.Contains(log.String(), "queueing again") {
			t.Errorf("logged:\n%s", &log)
		}
	})
}
