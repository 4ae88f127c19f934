package hold_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// Of a hundred holds that share a poll one gets a notice: that one ends, and one read of its value is all that it
// costs.
func TestNoticeIsFoundByThePollAndCostsOneRead(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		locks := holdtest.MustHold(t, srv, holdtest.AcquireAll(kit.Within(t, time.Minute), p, 100))
		interval := lease.PollInterval(kit.LockDelay)
		time.Sleep(20 * interval) // until the entries say since when they are held
		kv := srv.Keys(locks[42].Key())[0]
		p.Plan(nil)
		holdtest.Notify(t, srv, kv, layout.Notice{By: "ops", Reason: "deploy"})
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
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		time.Sleep(5 * time.Second)
		interval := lease.PollInterval(kit.LockDelay)
		p.PlanOne("read", etcdfake.Fate{LoseRequest: true})
		holdtest.Notify(t, srv, srv.Keys(h.Key())[0], layout.Notice{By: "ops", Reason: "deploy"})
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
		for _, kind := range []holdfast.Kind{holdfast.KindLock, holdfast.KindElection} {
			p := holdtest.Start(t, srv)
			a, b := holdtest.MustAcquire(t, queue.New(p.Host, kind, "a")), holdtest.MustAcquire(t, queue.New(p.Host, kind, "b"))
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

// The value of a leader of an election under a prefix is its candidate's, whatever it looks like.
func TestNoticeUnderAPrefixOfAnElectionIsNone(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, queue.At(p.Host, holdfast.KindElection, "/legacy/x"))
		notice := layout.Value{Queued: time.Now(), Notice: layout.Notice{By: "ops", Reason: "deploy", At: time.Now()}}
		_, err := srv.Client(t).Put(t.Context(), h.Key(), notice.Encode(), clientv3.WithIgnoreLease())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		if err := h.Check(); err != nil {
			t.Errorf("the term: %v", err)
		}
		holdtest.MustRelease(t, h)
	})
}

// A notice and an Update meet. Whichever comes first, and whatever becomes of the update's first request: the notice
// stays in the entry, the leader is told of it, and the update says so unless it was carried out before.
func TestUpdateReplacesNoNotice(t *testing.T) {
	t.Parallel()
	for name, fate := range map[string]etcdfake.Fate{
		"late": {Request: 300 * time.Millisecond}, "request lost": {LoseRequest: true}, "reply lost": holdtest.LostReply,
		"answered late": {Reply: 300 * time.Millisecond}, "silent, carried out": {LoseReply: true, Silent: true},
	} {
		for _, before := range []bool{false, true} {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				h := mustLead(t, p)
				time.Sleep(5 * time.Second)
				p.Updates(func(n int) (f etcdfake.Fate) {
					if n == 1 {
						f = fate
					}
					return f
				})
				notice := layout.Notice{By: "ops", Reason: "deploy"}
				if before {
					holdtest.Notify(t, srv, srv.Keys(entriesOfTerm)[0], notice)
				}
				updated := make(chan error, 1)
				go func() {
					err := h.Update(kit.Within(t, time.Minute), "new")
					updated <- err
				}()
				time.Sleep(100 * time.Millisecond)
				if !before {
					holdtest.Notify(t, srv, srv.Keys(entriesOfTerm)[0], notice)
				}
				lost, _ := noticed(t, h)
				var is *holdfast.LostError
				if err := <-updated; err != nil && (!errors.As(err, &is) || is.Cause != holdfast.CauseKicked) {
					t.Errorf("%s: Update: %v", name, err)
				}
				time.Sleep(5 * time.Second)
				v, _ := layout.DecodeValue(srv.Keys(entriesOfTerm)[0].Value)
				if lost.Cause != holdfast.CauseKicked || v.Notice.Reason != "deploy" || before && v.Data != "old" {
					t.Errorf("%s, noticed before %v: %v, and the entry says %+v", name, before, lost, v)
				}
				_ = h.Release(t.Context())
				kit.NothingStands(t, srv)
			})
		}
	}
}

// With any lock delay, and without one, a holder is told within two seconds.
func TestNoticeIsFoundWithinTwoSecondsWhateverTheLockDelay(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{-1, 200 * time.Millisecond, time.Second, 60 * time.Second} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			p := holdtest.Start(t, srv, func(o *session.Options) { o.LockDelay = delay })
			for i := range 10 { // at different moments between two polls
				h := holdtest.MustAcquire(t, p.Queue("x"))
				time.Sleep(time.Duration(i) * 137 * time.Millisecond)
				kv := srv.Keys(h.Key())[0]
				if v, _ := layout.DecodeValue(kv.Value); v.ToldWithin != max(delay, 0)+6*time.Second {
					t.Errorf("lock delay %v: the entry promises %v", delay, v.ToldWithin)
				}
				holdtest.Notify(t, srv, kv, layout.Notice{By: "ops", Reason: "deploy"})
				if _, after := noticed(t, h); after > 2*time.Second {
					t.Errorf("lock delay %v: told after %v", delay, after)
				}
				_ = h.Release(t.Context())
			}
		})
	}
}

// The first entry of a queue gets a notice while it waits for its lock delay. The attempt does not hold by that entry,
// and queues again.
func TestNoticeForAnEntryInItsLockDelayCostsItItsPlace(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{time.Second, 20 * time.Second} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			peer := kit.Join(t, srv, holdtest.EntriesX)
			p := holdtest.Start(t, srv, func(o *session.Options) { o.LockDelay = delay })
			done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
			kit.Queued(t, srv, holdtest.EntriesX, 2)
			peer.Revoke()
			time.Sleep(kit.Prompt)
			given, noticed := time.Now(), kit.Standing(srv, "x")[0]
			holdtest.Notify(t, srv, noticed, layout.Notice{By: "ops", Reason: "deploy"})
			r := holdtest.Granted(t, srv, done)
			if r.H.Created() == noticed.CreateRevision {
				t.Errorf("lock delay %v: held by the entry with the notice", delay)
			}
			history := srv.History(string(noticed.Key)) // the key was used again
			i := slices.IndexFunc(history, func(c etcdfake.Change) bool { return c.Deleted })
			if left := history[i].At.Sub(given); left > time.Second+kit.Prompt {
				t.Errorf("lock delay %v: the entry with the notice left after %v", delay, left)
			}
			if took := r.At.Sub(given); took > delay+kit.Prompt {
				t.Errorf("lock delay %v: held %v after the notice", delay, took)
			}
			holdtest.MustRelease(t, r.H)
			kit.NothingStands(t, srv)
		})
	}
}

// A notice with Removed bounds how long a hold that is never released keeps its name.
func TestRemovedEntryGoesWithoutARelease(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		next := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
		time.Sleep(2 * time.Second)
		holdtest.Notify(t, srv, srv.Keys(h.Key())[0], layout.Notice{By: "ops", Reason: "deploy", Removed: true})
		lost, _ := noticed(t, h)
		told := time.Now()
		var kick *holdfast.KickError
		if lost.Cause != holdfast.CauseRemoved || !errors.As(lost, &kick) || kick.By != "ops" {
			t.Errorf("%v", lost)
		}
		r := holdtest.Granted(t, srv, next)
		if after := r.At.Sub(told); after < lease.ToldWithin(kit.LockDelay) ||
			after > lease.ToldWithin(kit.LockDelay)+kit.Prompt {
			t.Errorf("the next goroutine holds %v later", after)
		}
		if err := h.Release(t.Context()); err != error(lost) {
			t.Errorf("Release: %v", err)
		}
		holdtest.MustRelease(t, r.H)
	})
}

// A value that another client has put, and that is no notice, ends nothing, and is read once.
func TestValueOfAnotherFormEndsNoHold(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
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
		holdtest.MustRelease(t, h)
	})
}

// An administrator kicks, and then removes. The log says once who has ended the hold, and its work is to end by then.
func TestNoticesOfOneHoldAreLoggedOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		p := holdtest.Start(t, srv, holdtest.LogTo(&log))
		h := holdtest.MustAcquire(t, p.Queue("x"))
		for _, removed := range []bool{false, true} {
			time.Sleep(2 * time.Second)
			holdtest.Notify(t, srv, srv.Keys(h.Key())[0], layout.Notice{By: "ops", Reason: "deploy", Removed: removed})
		}
		time.Sleep(2 * time.Second)
		if n := strings.Count(log.String(), "an administrator has ended a hold"); n != 1 {
			t.Errorf("%d log lines say so", n)
		}
		_ = h.Release(t.Context())
	})
}
