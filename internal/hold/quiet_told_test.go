package hold_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// What no watch tells, a poll does, within six seconds.
func TestWatchedHolderIsToldOfWhatNoWatchTells(t *testing.T) {
	for _, delay := range []time.Duration{-1, 200 * time.Millisecond, time.Second, 1400 * time.Millisecond} {
		three(t, func(t *testing.T, srv *etcdfake.Server) {
			p := startQuiet(t, srv, func(o *session.Options) { o.LockDelay = delay })
			isToldWithin(t, srv, p, lease.ToldWithin(0))
		})
	}
}

// The read that proves a renewal asks about a hundred holds at most.
func TestWatchedHolderOfManyIsToldOfWhatNoWatchTells(t *testing.T) {
	three(t, func(t *testing.T, srv *etcdfake.Server) {
		p := startQuiet(t, srv)
		for i := range 100 {
			h := holdtest.MustAcquire(t, p.Queue(fmt.Sprint(i)))
			defer func() { _ = h.Release(t.Context()) }()
		}
		isToldWithin(t, srv, p, lease.ToldWithin(0))
	})
}

// isToldWithin changes or deletes the entry of a hold, which the session must notice in time.
func isToldWithin(t *testing.T, srv *etcdfake.Server, p *holdtest.Process, bound time.Duration) {
	t.Helper()
	rests(t, p)
	for i := range 8 { // at different moments between two polls
		h := holdtest.MustAcquire(t, p.Queue("x"))
		time.Sleep(time.Duration(i) * 737 * time.Millisecond)
		cause := holdfast.CauseEntryDeleted
		if i%2 == 0 {
			cause = holdfast.CauseKicked
			holdtest.Notify(t, srv, srv.Keys(h.Key())[0], layout.Notice{By: "ops", Reason: "deploy"})
		} else {
			srv.Delete(h.Key())
		}
		if lost, after := noticed(t, h); after > bound || lost.Cause != cause {
			t.Errorf("lock delay %v: told after %v, want %v: %v", p.Host.LockDelay, after, bound, lost)
		}
		_ = h.Release(t.Context())
	}
}

// ring puts the session key as it is, as an administrator's request does.
func ring(t *testing.T, srv *etcdfake.Server, p *holdtest.Process) {
	t.Helper()
	_, err := srv.Client(t).Put(t.Context(), p.SessionKey(), "", clientv3.WithIgnoreValue(), clientv3.WithIgnoreLease())
	if err != nil {
		t.Fatal(err)
	}
}

// The bell makes the session poll at once, also one whose poll is in flight, whose watches have just been created
// again, or that has only just acquired.
func TestBellMakesAHolderPollAtOnce(t *testing.T) {
	for name, before := range map[string]func(srv *etcdfake.Server, p *holdtest.Process){
		"at rest": func(*etcdfake.Server, *holdtest.Process) {},
		"a member hangs": func(srv *etcdfake.Server, _ *holdtest.Process) {
			srv.Members()[1].Hang()
		},
	} {
		t.Run(name, func(t *testing.T) {
			three(t, func(t *testing.T, srv *etcdfake.Server) {
				p := startQuiet(t, srv)
				rests(t, p)
				for i := range 12 {
					h := holdtest.MustAcquire(t, p.Queue("x"))
					time.Sleep(time.Duration(i) * 103 * time.Millisecond)
					before(srv, p)
					holdtest.Notify(t, srv, srv.Keys(h.Key())[0], layout.Notice{By: "ops", Reason: "deploy"})
					ring(t, srv, p)
					most := 8 * kit.OneWay
					if name != "at rest" {
						most = time.Second // until a copy has gone to another member
					}
					if lost, after := noticed(t, h); lost.Cause != holdfast.CauseKicked || after > most {
						t.Errorf("%v after the grant: told after %v: %v", time.Duration(i)*103*time.Millisecond, after, lost)
					}
					srv.Members()[1].Resume()
					_ = h.Release(t.Context())
				}
			})
		})
	}
}

// The bell rings for a notice, whose read has no reply. It is made again after the next poll, which follows soon.
func TestNoticeOfABellWhoseReadIsNotAnsweredIsReadSoon(t *testing.T) {
	three(t, func(t *testing.T, srv *etcdfake.Server) {
		p := startQuiet(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		rests(t, p)
		p.Plan(func(kind string, n int) etcdfake.Fate {
			return etcdfake.Fate{LoseRequest: kind == "read" && n <= 20} // and its repetitions
		})
		time.AfterFunc(time.Second, func() { p.Plan(nil) })
		holdtest.Notify(t, srv, srv.Keys(h.Key())[0], layout.Notice{By: "ops", Reason: "deploy"})
		ring(t, srv, p)
		if lost, after := noticed(t, h); lost.Cause != holdfast.CauseKicked || after > 2*time.Second {
			t.Errorf("after %v: %v", after, lost)
		}
	})
}

// Each bell moves the gate, which the put of an entry compares.
func TestBellsDoNotKeepASessionFromLocking(t *testing.T) {
	three(t, func(t *testing.T, srv *etcdfake.Server) {
		p := startQuiet(t, srv)
		rests(t, p)
		stop := make(chan struct{})
		var ringer sync.WaitGroup
		ringer.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Second):
					ring(t, srv, p)
				}
			}
		})
		var longest time.Duration
		pairs := 0
		for begin := time.Now(); time.Since(begin) < 4*time.Second; pairs++ {
			start := time.Now()
			h := holdtest.MustAcquire(t, p.Queue("x"))
			longest = max(longest, time.Since(start))
			holdtest.MustRelease(t, h)
		}
		close(stop)
		ringer.Wait() // a ring that the end of the test cuts off is an error
		if longest > 8*kit.OneWay || pairs < 160 {
			t.Errorf("%d pairs in four seconds, the longest acquisition took %v", pairs, longest)
		}
	})
}
