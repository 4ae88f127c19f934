package queue

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// notify puts a notice into an entry, as an administrator does.
func notify(t *testing.T, srv *etcdfake.Server, kv *mvccpb.KeyValue, n layout.Notice) {
	t.Helper()
	if !tryNotify(t, srv, kv, n) {
		t.Fatalf("the entry was changed or removed: %v", kv)
	}
}

// tryNotify returns false if the entry was changed or removed since it was read.
func tryNotify(t *testing.T, srv *etcdfake.Server, kv *mvccpb.KeyValue, n layout.Notice) bool {
	t.Helper()
	v, ok := layout.DecodeValue(kv.Value)
	if !ok {
		t.Fatalf("entry %v", kv)
	}
	n.At = time.Now()
	v.Notice = n
	resp, err := srv.Client(t).Txn(t.Context()).
		If(clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision)).
		Then(clientv3.OpPut(string(kv.Key), v.Encode(), clientv3.WithIgnoreLease())).Commit()
	if err != nil {
		t.Fatal(err)
	}
	return resp.Succeeded
}

// Of a hundred holds that share a poll one gets a notice: that one ends, and one read of its value is all that it
// costs.
func TestNoticeIsFoundByThePollAndCostsOneRead(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		locks := mustHold(t, srv, acquireAll(kit.Within(t, time.Minute), p, 100))
		interval := locks[0].line.shared.poll.interval()
		time.Sleep(20 * interval) // until the entries say since when they are held
		kv := srv.Keys(locks[42].Key())[0]
		p.Plan(nil)
		notify(t, srv, kv, layout.Notice{By: "ops", Reason: "deploy"})
		lost, after := noticed(t, locks[42])
		if after > interval+4*kit.OneWay+time.Millisecond || lost.Cause != holdfast.CauseKicked {
			t.Errorf("after %v: %v", after, lost)
		}
		time.Sleep(10 * interval)
		if sent := p.Counts(); sent["read"] != 1 || sent["poll"] > 12 {
			t.Errorf("requests: %v", sent)
		}
		for i, h := range locks {
			if err := h.Check(); (err != nil) != (i == 42) {
				t.Errorf("%d: %v", i, err)
			}
		}
	})
}

// The read of a notice has no reply. It is made again after the next poll.
func TestNoticeWhoseReadIsNotAnsweredIsReadAfterTheNextPoll(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h := mustAcquire(t, p.queue("x"))
		time.Sleep(5 * time.Second)
		interval := h.line.shared.poll.interval()
		p.PlanOne("read", etcdfake.Fate{LoseRequest: true})
		notify(t, srv, srv.Keys(h.Key())[0], layout.Notice{By: "ops", Reason: "deploy"})
		if lost, after := noticed(t, h); lost.Cause != holdfast.CauseKicked || after > 2*interval+8*kit.OneWay {
			t.Errorf("after %v: %v", after, lost)
		}
		if n := p.Counts()["read"]; n != 2 {
			t.Errorf("%d reads, want 2", n)
		}
	})
}

// The poll finds that the entry of one of two holds is gone. Nothing is to be read of the other one.
func TestEntryThatIsDeletedCostsNoReadOfTheOthers(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		for _, kind := range []string{"lock", "election"} {
			p := start(t, srv)
			a, b := mustAcquire(t, New(p.Host, kind, "a")), mustAcquire(t, New(p.Host, kind, "b"))
			time.Sleep(5 * time.Second)
			p.Plan(nil)
			srv.Delete(a.Key())
			noticed(t, a)
			time.Sleep(5 * time.Second)
			if n := p.Counts(); n["read"] != 0 || b.Check() != nil {
				t.Errorf("%s: sent %v, the other: %v", kind, n, b.Check())
			}
		}
	})
}

// Administrators ask locks. The value of a term is its candidate's, whatever it looks like.
func TestNoticeInTheEntryOfATermIsNone(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h := mustLead(t, p)
		// Before the entry says since when it is held, so that the session reads it.
		notify(t, srv, srv.Keys(h.Key())[0], layout.Notice{By: "ops", Reason: "deploy"})
		time.Sleep(5 * time.Second)
		if err := h.Check(); err != nil {
			t.Errorf("the term: %v", err)
		}
		mustRelease(t, h)
	})
}

// With any lock delay, and without one, a holder is told within two seconds.
func TestNoticeIsFoundWithinTwoSecondsWhateverTheLockDelay(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{-1, 200 * time.Millisecond, time.Second, 60 * time.Second} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			p := start(t, srv, func(o *session.Options) { o.LockDelay = delay })
			for i := range 10 { // at different moments between two polls
				h := mustAcquire(t, p.queue("x"))
				time.Sleep(time.Duration(i) * 137 * time.Millisecond)
				kv := srv.Keys(h.Key())[0]
				if v, _ := layout.DecodeValue(kv.Value); v.ToldWithin != max(delay, 0)+2*time.Second {
					t.Errorf("lock delay %v: the entry promises %v", delay, v.ToldWithin)
				}
				notify(t, srv, kv, layout.Notice{By: "ops", Reason: "deploy"})
				if _, after := noticed(t, h); after > 2*time.Second {
					t.Errorf("lock delay %v: told after %v", delay, after)
				}
				_ = h.Release(t.Context())
			}
		})
	}
}

// The first entry of a queue gets a notice while it waits for its lock delay. It is told once it holds, within the time
// that its entry promises.
func TestNoticeForAnEntryInItsLockDelayIsFoundWhenItHolds(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{time.Second, 20 * time.Second} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			peer := kit.Join(t, srv, entriesX)
			p := start(t, srv, func(o *session.Options) { o.LockDelay = delay })
			done := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
			kit.Queued(t, srv, entriesX, 2)
			peer.Revoke()
			time.Sleep(kit.Prompt)
			given := time.Now()
			notify(t, srv, kit.Standing(srv, "x")[0], layout.Notice{By: "ops", Reason: "deploy"})
			r := granted(t, srv, done)
			if _, _ = noticed(t, r.h); time.Since(given) > toldWithin(delay) {
				t.Errorf("lock delay %v: told after %v", delay, time.Since(given))
			}
			_ = r.h.Release(t.Context())
		})
	}
}

// A notice with Removed bounds how long a hold that is never released keeps its name.
func TestRemovedEntryGoesWithoutARelease(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h := mustAcquire(t, p.queue("x"))
		next := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		time.Sleep(2 * time.Second)
		notify(t, srv, srv.Keys(h.Key())[0], layout.Notice{By: "ops", Reason: "deploy", Removed: true})
		lost, _ := noticed(t, h)
		told := time.Now()
		var kick *holdfast.KickError
		if lost.Cause != holdfast.CauseRemoved || !errors.As(lost, &kick) || kick.By != "ops" {
			t.Errorf("%v", lost)
		}
		r := granted(t, srv, next)
		if after := r.at.Sub(told); after < toldWithin(kit.LockDelay) || after > toldWithin(kit.LockDelay)+kit.Prompt {
			t.Errorf("the next goroutine holds %v later", after)
		}
		if err := h.Release(t.Context()); err != error(lost) {
			t.Errorf("Release: %v", err)
		}
		mustRelease(t, r.h)
	})
}

// A value that another client has put, and that is no notice, ends nothing, and is read once.
func TestValueOfAnotherFormEndsNoHold(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h := mustAcquire(t, p.queue("x"))
		for i, value := range []string{"x", `{"v":1}`, `{"v":1,"queued_at":"2026-02-03T04:05:06Z","notice":{"by":"x"}}`} {
			time.Sleep(3 * time.Second)
			p.Plan(nil)
			if _, err := srv.Client(t).Put(t.Context(), h.Key(), value, clientv3.WithIgnoreLease()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
			if n := p.Counts()["read"]; n != 1 || h.Check() != nil {
				t.Errorf("%d: %d reads, %v", i, n, h.Check())
			}
		}
		mustRelease(t, h)
	})
}
