package hold_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// noticed waits until a hold has ended, and returns its loss and how long that took.
func noticed(t *testing.T, h *hold.Hold) (lost *holdfast.LostError, after time.Duration) {
	t.Helper()
	begin := time.Now()
	select {
	case <-h.Done():
	case <-time.After(time.Minute):
		t.Fatal("never noticed")
	}
	if !errors.As(h.Check(), &lost) {
		t.Fatalf("Check: %v", h.Check())
	}
	return lost, time.Since(begin)
}

// Scenario 23. A lease is revoked: every hold on it is lost for that reason, even if its
// entry was found missing before its lease was. No hold of another session is lost.
func TestRevokedLeaseEndsEveryLockOnIt(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
		var locks []*hold.Hold
		for _, name := range []string{"x", "y", "z"} {
			locks = append(locks, holdtest.MustAcquire(t, a.Queue(name)))
		}
		theirs := holdtest.MustAcquire(t, b.Queue("theirs"))
		time.Sleep(3 * time.Second)
		revoked := time.Now()
		srv.Revoke(a.Sess.Lease())
		for _, h := range locks {
			if lost, _ := noticed(t, h); lost.Cause != holdfast.CauseRevoked || lost.Name != h.Queue().Name() ||
				time.Since(revoked) > 2*time.Second {
				t.Errorf("%s after %v: %v", h.Queue().Name(), time.Since(revoked), lost)
			}
		}
		if err := theirs.Check(); err != nil {
			t.Errorf("the other session's: %v", err)
		}
	})
}

// The watch of the session key hangs, and the next renewal is seconds away. The poll finds that the key is gone with
// the entries, and has the session ask for its lease.
func TestSessionLearnsOfARevocationByThePoll(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		p.PlanAll("event", etcdfake.Fate{Reply: 24 * time.Hour})
		time.Sleep(kit.LockDelay)
		revoked := time.Now()
		srv.Revoke(h.Lease())
		noticed(t, h)
		time.Sleep(kit.Prompt) // it asks for the lease, then for the cluster
		if untilRenewal := p.Renewal - kit.LockDelay; time.Since(revoked) > untilRenewal {
			t.Fatalf("told after %v, and a renewal was due after %v: this tests nothing", time.Since(revoked), untilRenewal)
		}
		if p.Sess.Lease() == h.Lease() && p.Sess.Check() == nil {
			t.Errorf("%v after the revocation the session trusts its lease", time.Since(revoked))
		}
		p.Plan(nil)
	})
}

// All holders are told at once. Only then is etcd asked for the reason, once.
func TestHoldersAreToldAtOnceWhenManyEntriesAreDeleted(t *testing.T) {
	n := 1000
	if bubble.Race {
		n = 300 // CI tests all of them without the race detector
	}
	for name, c := range map[string]struct {
		remove   func(srv *etcdfake.Server, p *holdtest.Process, locks []*hold.Hold)
		cause    holdfast.Cause
		mostAsks int
	}{
		"deleted": {func(srv *etcdfake.Server, _ *holdtest.Process, locks []*hold.Hold) {
			for _, h := range locks {
				srv.Delete(h.Key())
			}
		}, holdfast.CauseEntryDeleted, 0},
		"revoked": {func(srv *etcdfake.Server, p *holdtest.Process, _ []*hold.Hold) { srv.Revoke(p.Sess.Lease()) },
			holdfast.CauseRevoked, 1},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				locks := holdtest.MustHold(t, srv, holdtest.AcquireAll(kit.Within(t, time.Minute), p, n))
				interval := lease.PollInterval(kit.LockDelay)
				time.Sleep(3 * interval)
				before := p.Link.Count()["LeaseTimeToLive"]
				removed := time.Now()
				c.remove(srv, p, locks)
				for _, h := range locks {
					<-h.Done()
				}
				if took := time.Since(removed); took > interval+8*kit.OneWay {
					t.Errorf("the last of %d was told after %v, want an interval of %v and a few round trips", n, took, interval)
				}
				for _, h := range locks {
					var lost *holdfast.LostError
					if !errors.As(h.Check(), &lost) || lost.Cause != c.cause || lost.Name != h.Queue().Name() {
						t.Fatalf("%s: %v, want cause %v", h.Queue().Name(), h.Check(), c.cause)
					}
				}
				time.Sleep(time.Second)
				if asked := p.Link.Count()["LeaseTimeToLive"] - before; asked > c.mostAsks {
					t.Errorf("asked %d times whether the lease exists", asked)
				}
			})
		})
	}
}

// A member that hangs delays a poll by the pause before it is sent to the others.
func TestUnansweredPollIsRepeated(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		interval := lease.PollInterval(kit.LockDelay)
		time.Sleep(3 * interval) // no poll is in flight
		hung := false
		p.Plan(func(kind string, n int) (f etcdfake.Fate) {
			if kind == "poll" && n == 1 {
				hung, f = true, holdtest.Silence
			}
			return f
		})
		srv.Delete(h.Key())
		if _, after := noticed(t, h); !hung || after > interval+interval/2+2*kit.OneWay {
			t.Errorf("noticed after %v; a poll hung: %v", after, hung)
		}
	})
}

func TestUnansweredPollsAreCountedAndEachRowOfThemIsLoggedOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		var metrics kit.Metrics
		p := holdtest.Start(t, srv, func(o *session.Options) {
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
			metrics = kit.CollectMetrics(o)
		})
		h := holdtest.MustAcquire(t, p.Queue("x"))
		before := int64(0)
		for row := range 2 {
			p.PlanAll("poll", etcdfake.Fate{LoseRequest: true})
			time.Sleep(20 * time.Second)
			if err := h.Check(); err != nil {
				t.Errorf("an unanswered poll has ended the hold: %v", err)
			}
			if n := metrics.Points(t)["polls.unanswered "] - before; n < 10 {
				t.Errorf("%d unanswered polls are counted: %v", n, metrics.Points(t))
			}
			if n := strings.Count(log.String(), "could not check whether the entries"); n != row+1 {
				t.Errorf("%d log lines after %d rows:\n%s", n, row+1, log.String())
			}
			p.Plan(nil)
			time.Sleep(5 * time.Second) // a poll of the row is in flight
			before = metrics.Points(t)["polls.unanswered "]
			time.Sleep(20 * time.Second)
			if n := metrics.Points(t)["polls.unanswered "] - before; n != 0 || p.Counts()["poll"] == 0 {
				t.Errorf("%d polls are counted, and all were answered: %v", n, p.Counts())
			}
		}
		p.Heal()
		holdtest.MustRelease(t, h)
	})
}

// While the lease is not watched, and a revocation comes right after the put by which a lock is held, whose reply is
// late as those to all polls are: the waiter's lock delay has begun before the lock is held.
func TestHoldIsAsOldAsTheRequestByWhichItIsHeld(t *testing.T) {
	for late := time.Duration(0); late <= kit.LockDelay/2-4*kit.OneWay; late += 5 * time.Millisecond {
		t.Run(late.String(), func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
				a.Plan(func(kind string, _ int) (f etcdfake.Fate) {
					switch kind {
					case "enqueue", "poll":
						f.Reply = late
					case "session watch":
						f = holdtest.Silence
					case "event":
						f.Reply = time.Hour
					}
					return f
				})
				holder := holdtest.AcquireLater(kit.Within(t, time.Minute), a.Queue("x"))
				time.Sleep(time.Millisecond)
				waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), b.Queue("x"))
				time.Sleep(2 * kit.OneWay)
				kit.Queued(t, srv, holdtest.EntriesX, 2)
				srv.Revoke(a.Sess.Lease())
				first := <-holder
				if first.Err != nil {
					t.Fatal(first.Err)
				}
				lost, _ := noticed(t, first.H)
				told := time.Now()
				switch r := holdtest.Granted(t, srv, waiter); {
				case lost.Cause != holdfast.CauseRevoked:
					t.Errorf("lost: %v", lost)
				case !r.At.After(told):
					t.Errorf("the next one held %v before it was told", told.Sub(r.At))
				}
			})
		})
	}
}

// The poller ends with the last hold, and begins again with the next one: two polls in a lock delay, no more.
func TestPollsAreMadeWhileAnythingIsHeld(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		holdtest.MustRelease(t, holdtest.MustAcquire(t, p.Queue("x")))
		p.Plan(nil)
		time.Sleep(10 * kit.LockDelay)
		if n := p.Counts()["poll"]; n != 0 {
			t.Errorf("%d polls while nothing is held", n)
		}
		h := holdtest.MustAcquire(t, p.Queue("x"))
		p.Plan(nil)
		time.Sleep(10 * kit.LockDelay)
		if n := p.Counts()["poll"]; n < 19 || n > 20 {
			t.Errorf("%d polls in ten lock delays, want 20", n)
		}
		srv.Delete(h.Key())
		if _, after := noticed(t, h); after > kit.LockDelay {
			t.Errorf("told after %v", after)
		}
	})
}

// Close interrupts the poll. That is no failure to report.
func TestPollThatCloseInterruptsIsNotReported(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		p := holdtest.Start(t, srv, func(o *session.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		holdtest.MustAcquire(t, p.Queue("x"))
		p.PlanAll("poll", holdtest.Silence)
		time.Sleep(3 * lease.PollInterval(kit.LockDelay) / 2)
		if p.Counts()["poll"] == 0 {
			t.Fatal("no poll hangs: this tests nothing")
		}
		holdtest.MustClose(t, p)
		if text := log.String(); strings.Contains(text, "could not check") {
			t.Errorf("logged %s", text)
		}
	})
}

// What is held has ended before a session removes its entries: package queue does that next, and a waiter holds then.
func TestHoldsHaveEndedBeforeTheirEntriesAreRemoved(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		for range 20 { // the goroutine that also ends them may come first
			p := holdtest.Start(t, srv)
			h := holdtest.MustAcquire(t, p.Queue("x"))
			p.Host.Lease().Lose(holdfast.CauseClosed, nil)
			h.BeforeRevoke(t.Context())
			select {
			case <-h.Done():
			default:
				t.Error("it has not ended")
			}
			if err := p.Sess.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
