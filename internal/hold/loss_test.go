package hold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// deaf has all that etcd says of its own accord come too late.
func deaf(p *holdtest.Process) { p.PlanAll("event", etcdfake.Fate{Reply: time.Hour}) }

// A refused write, or an update, finds that an entry is gone. That does not say whether the lease is. So etcd is asked,
// once, and a lease that is gone is lost.
func TestWriterThatFindsItsEntryGoneHasTheLeaseAskedAbout(t *testing.T) {
	for name, find := range map[string]func(t *testing.T, h *hold.Hold){
		"a fenced write": func(_ *testing.T, h *hold.Hold) { h.EndStale() },
		"an update":      func(t *testing.T, h *hold.Hold) { _ = h.Update(t.Context(), "new") },
	} {
		for _, revoked := range []bool{false, true} {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				h := mustLead(t, p)
				time.Sleep(4 * kit.OneWay) // no event is in flight
				deaf(p)
				if revoked {
					srv.Revoke(h.Lease())
				} else {
					srv.Delete(h.Key())
				}
				find(t, h)
				time.Sleep(kit.Prompt)
				find(t, h)
				time.Sleep(kit.Prompt)
				if n := p.Counts()["LeaseTimeToLive"]; n != 1 {
					t.Errorf("%s, revoked %v: asked %d times whether the lease exists", name, revoked, n)
				}
				if lost := p.Sess.Lease() != h.Lease() || p.Sess.Check() != nil; lost != revoked {
					t.Errorf("%s, revoked %v: the session has lost its lease: %v", name, revoked, lost)
				}
				p.Plan(nil)
			})
		}
	}
}

// The loss of the lease is the greater one, even if the hold does not know of it yet.
func TestRefusedWriteOnALostLeaseTellsHowThatWasLost(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		for range 20 { // the goroutine that also ends the hold may come first
			p := holdtest.Start(t, srv)
			h := holdtest.MustAcquire(t, p.Queue("x"))
			p.Host.Lease().Lose(holdfast.CauseRevoked, nil)
			h.EndStale()
			if lost, ok := h.Check().(*holdfast.LostError); !ok || lost.Cause != holdfast.CauseRevoked || lost.Name != "x" {
				t.Errorf("Check: %v", h.Check())
			}
			holdtest.MustClose(t, p)
		}
	})
}

// A release finds that its entry is gone, and the session knows of no loss. etcd says whether the lease is gone, too:
// not by 0 seconds, which is less than one, and not by an error. Where the member that is asked hangs, another one says
// it.
func TestReleaseThatFindsItsEntryGoneAsksWhy(t *testing.T) {
	for name, c := range map[string]struct {
		revoked bool
		first   etcdfake.Fate // of the first request
		cause   holdfast.Cause
	}{
		"deleted": {false, etcdfake.Fate{}, holdfast.CauseEntryDeleted},
		"revoked": {true, etcdfake.Fate{}, holdfast.CauseRevoked},
		"deleted, and etcd does not say": {
			false, etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied}, holdfast.CauseEntryDeleted,
		},
		"revoked, and the member hangs": {true, holdtest.Silence, holdfast.CauseRevoked},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				srv := etcdfake.New(etcdfake.Options{MinTTL: time.Second})
				t.Cleanup(srv.Close)
				p := holdtest.Start(t, srv, func(o *session.Options) {
					if !c.revoked { // a lease that lives has less than a second left
						o.TTL, o.DriftMargin = time.Second, 0
					}
				})
				h := holdtest.MustAcquire(t, p.Queue("x"))
				time.Sleep(4 * kit.OneWay) // no event is in flight, which would tell what comes until it arrives
				p.Plan(func(kind string, n int) etcdfake.Fate {
					switch {
					case kind == "LeaseTimeToLive" && n == 1:
						return c.first
					case kind == "event":
						return etcdfake.Fate{Reply: time.Hour}
					}
					return etcdfake.Fate{}
				})
				if c.revoked {
					srv.Revoke(h.Lease())
				} else {
					srv.Delete(h.Key())
				}
				err := h.Release(kit.Within(t, time.Minute))
				if lost, ok := err.(*holdfast.LostError); !ok || lost.Cause != c.cause || lost.Name != "x" {
					t.Errorf("Release: %v", err)
				}
				if h.Check() != holdfast.ErrReleased {
					t.Errorf("Check: %v", h.Check())
				}
				p.Plan(nil)
			})
		})
	}
}

// The lease of a released hold is lost before etcd answers. If etcd has ended it, that may have been before the
// release; otherwise the outcome is unknown.
func TestUnansweredReleaseIsALossIfEtcdHasEndedTheLease(t *testing.T) {
	for cause, lost := range map[holdfast.Cause]bool{
		holdfast.CauseRevoked: true, holdfast.CauseClusterChanged: true,
		holdfast.CauseExpired: false, holdfast.CauseClosed: false,
	} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			p := holdtest.Start(t, srv)
			h := holdtest.MustAcquire(t, p.Queue("x"))
			p.Link.BlackHole()
			done := make(chan error, 1)
			go func() { done <- h.Release(kit.Within(t, time.Minute)) }() // received below
			time.Sleep(kit.Prompt)
			p.Host.Lease().Lose(cause, nil)
			err := <-done
			if is, ok := err.(*holdfast.LostError); ok != lost || ok && is.Cause != cause {
				t.Errorf("%v: %v", cause, err)
			}
			text := err.Error()
			if !lost && (!errors.Is(err, holdfast.ErrOutcomeUnknown) ||
				!strings.Contains(text, "the session removes the entry") ||
				strings.Count(text, holdfast.ErrOutcomeUnknown.Error()) != 1) {
				t.Errorf("%v: %v", cause, err)
			}
			p.Heal()
		})
	}
}

// A caller gives up at the moment in which the lease is lost.
func TestReleaseWhoseCallerGivesUpAsTheLeaseIsLost(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		h.StopWith(holdfast.ErrReleased) // and nothing removes the entry yet
		p.Host.Lease().Lose(holdfast.CauseRevoked, nil)
		err := h.Release(kit.Within(t, time.Second))
		if lost, ok := err.(*holdfast.LostError); !ok || lost.Cause != holdfast.CauseRevoked {
			t.Errorf("Release: %v", err)
		}
		h.Remove()
		synctest.Wait()
	})
}

// A set is a hold: the loss of one entry is that of all, and what its writes compare is each entry, once.
func TestWritesOfASetCompareEachEntryOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		holds := holdtest.MustAcquireSet(t, p.Set("x", "y", "z"), hold.Request{})
		for _, h := range holds {
			if cmps := h.Holding(); len(cmps) != 3 || string(cmps[0].KeyBytes()) != h.Key() {
				t.Errorf("%d comparisons, the first of %s", len(cmps), cmps[0].KeyBytes())
			}
		}
		holdtest.MustRelease(t, holds[0])
	})
}

// Each who waits for the end is told.
func TestEndIsToldToAllWhoWaitForIt(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Queue("x"))
		a, b := h.Done(), h.Done()
		holdtest.MustRelease(t, h)
		for i, done := range []<-chan struct{}{a, b, h.Done()} {
			select {
			case <-done:
			default:
				t.Errorf("%d: not told", i)
			}
		}
		ctx, cancel := h.Context(context.Background(), true)
		if cancel(); context.Cause(ctx) != holdfast.ErrReleased || h.Contexts() != 0 {
			t.Errorf("a context has the cause %v; the hold knows %d", context.Cause(ctx), h.Contexts())
		}
	})
}

// The caller of a tree lock, or of a Downgradable, has asked for one name, that of the first hold. The caller of a set
// is told which of its names was lost.
func TestLossInASetHasTheNameThatTheCallerAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		of    func(p *holdtest.Process) queue.Set
		names int // the hold whose name and token the loss of the second hold has
	}{
		"two locks":    {func(p *holdtest.Process) queue.Set { return p.Set("x", "y") }, 1},
		"Downgradable": {func(p *holdtest.Process) queue.Set { return p.Queue("x").Downgradable() }, 0},
		"a tree lock": {func(p *holdtest.Process) queue.Set {
			path, above := queue.New(p.Host, holdfast.KindTree, "x/y"), queue.New(p.Host, holdfast.KindTree, "x")
			return queue.Set{path, above.Above("x/y")}
		}, 0},
	} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			holds := holdtest.MustAcquireSet(t, c.of(holdtest.Start(t, srv)), hold.Request{})
			holds[1].EndStale()
			want := holds[c.names]
			lost, ok := holds[0].Check().(*holdfast.LostError)
			if !ok || lost.Kind != want.Queue().Kind() || lost.Name != want.Queue().Name() || lost.Token != want.Token() {
				t.Errorf("%s: %v; token %v, want %v", name, holds[0].Check(), lost.Token, want.Token())
			}
		})
	}
}

// A function that returns the cause of its context tells the loss. One that returns something else, or the loss of
// another hold, does not.
func TestLossIsJoinedToAnErrorThatDoesNotTellIt(t *testing.T) {
	lost, other, failed := &holdfast.LostError{Name: "x"}, &holdfast.LostError{Name: "y"}, errors.New("failed")
	for i, c := range []struct {
		err    error
		lost   *holdfast.LostError
		joined bool
	}{
		{nil, nil, false}, {failed, nil, false}, {lost, lost, false}, {fmt.Errorf("wrote half: %w", lost), lost, false},
		{nil, lost, true}, {failed, lost, true}, {other, lost, true},
	} {
		got := hold.Join(c.err, c.lost)
		tellsBoth := errors.Is(got, lost) && (c.err == nil || errors.Is(got, c.err))
		if joined := got != c.err; joined != c.joined || joined && !tellsBoth {
			t.Errorf("%d: %v and %v are joined to %v", i, c.err, c.lost, got)
		}
	}
}
