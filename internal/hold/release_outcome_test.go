package hold

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/queue"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// The work is done, and so is the release, as far as this process knows: it was no failure of the work if the session
// gives its lease up meanwhile. If etcd has ended the lease, that may have been while the work ran.
func TestLossDuringTheReleaseIsNoneOfTheWork(t *testing.T) {
	for cause, fails := range map[holdfast.Cause]bool{
		holdfast.CauseExpired: false, holdfast.CauseClosed: false, holdfast.CauseRevoked: true,
		holdfast.CauseClusterChanged: true, holdfast.CauseEntryDeleted: true,
	} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			h := mustHold(t, kit.Start(t, srv), "x")
			h.stop(holdfast.ErrReleased)
			h.removal.finalize(h.lost(cause))
			lost := h.ReleaseAfterWork(t.Context())
			if (lost != nil) != fails || fails && lost.Cause != cause {
				t.Errorf("%v during the release: %v", cause, lost)
			}
		})
	}
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		h := mustHold(t, kit.Start(t, srv), "x")
		h.endAndRelease(h.lost(holdfast.CauseExpired))
		if lost := h.ReleaseAfterWork(t.Context()); lost == nil || lost.Cause != holdfast.CauseExpired {
			t.Errorf("expired during the work: %v", lost)
		}
	})
}

// The context of a release may end with a loss of its own, of another lock for example. That is not the loss of this
// one, and the operator is told that the outcome is unknown.
func TestReleaseWhoseContextEndsWithAnotherLossIsOfUnknownOutcome(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		p := kit.Start(t, srv, func(o *session.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		h := mustHold(t, p, "x")
		p.Link.BlackHole()
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(&holdfast.LostError{Name: "y", Cause: holdfast.CauseRevoked}) })
		if lost := h.ReleaseAfterWork(ctx); lost != nil {
			t.Errorf("%v", lost)
		}
		if n := strings.Count(log.String(), "etcd has not confirmed the release"); n != 1 {
			t.Errorf("%d log lines say so:\n%s", n, &log)
		}
		p.Heal()
	})
}

// A removal that etcd has confirmed is none that a later loss of the lease makes uncertain.
func TestRemovalThatSucceededIsNoLoss(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		h := mustHold(t, kit.Start(t, srv), "x")
		h.stop(holdfast.ErrReleased)
		h.grant.Lease.Lose(holdfast.CauseRevoked, nil)
		h.removal.finalize(nil)
		if err := h.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
	})
}

// Of several entries whose removal is not confirmed, the error tells of the first: the one that the caller has named
// first.
func TestReleaseOfASetTellsOfItsFirstEntry(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		var set queue.Set
		for _, name := range []string{"a", "b", "c"} {
			set = append(set, queue.New(p.Host, holdfast.KindLock, name))
		}
		holds, err := AcquireSet(t.Context(), set, Request{})
		if err != nil {
			t.Fatal(err)
		}
		p.Link.BlackHole()
		err = holds[0].Release(kit.Within(t, time.Second))
		if !errors.Is(err, holdfast.ErrOutcomeUnknown) || !strings.Contains(err.Error(), `lock "a"`) {
			t.Errorf("Release: %v", err)
		}
		p.Heal()
	})
}

// What becomes of an entry whose removal is not confirmed, the error tells: also by its token, which a reader has not.
func TestErrorOfAnUnconfirmedReleaseTellsWhatFollows(t *testing.T) {
	for name, c := range map[string]struct {
		minHold time.Duration
		reads   bool
		follows string
	}{
		"a lock":       {0, false, "the session removes the entry"},
		"with MinHold": {time.Minute, false, "the session keeps the name taken"},
		"a reader":     {0, true, "the session removes the entry"},
	} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			p := kit.Start(t, srv)
			q := queue.New(p.Host, holdfast.KindLock, "x")
			if c.reads {
				q = q.Readers()
			}
			h, err := Acquire(t.Context(), q, Request{MinHold: c.minHold})
			if err != nil {
				t.Fatal(err)
			}
			p.Link.BlackHole()
			err = h.Release(kit.Within(t, time.Second))
			text := err.Error()
			if !errors.Is(err, holdfast.ErrOutcomeUnknown) || !strings.Contains(text, c.follows) ||
				strings.Contains(text, "(token ") == c.reads ||
				strings.Count(text, holdfast.ErrOutcomeUnknown.Error()) != 1 {
				t.Errorf("%s: %v", name, err)
			}
			p.Heal()
		})
	}
}

// The operator is warned of a writer's entry that may stand behind its reader, and only then.
func TestDowngradeWarnsIfTheWritersEntryMayStand(t *testing.T) {
	for name, c := range map[string]struct {
		fate  etcdfake.Fate
		warns bool
	}{
		"sent again": {etcdfake.Fate{LoseRequest: true}, false},
		"cut off":    {etcdfake.Fate{LoseRequest: true, Silent: true}, true},
	} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			var log bytes.Buffer
			p := kit.Start(t, srv, func(o *session.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			holds, err := AcquireSet(t.Context(), queue.New(p.Host, holdfast.KindLock, "x").Downgradable(), Request{})
			if err != nil {
				t.Fatal(err)
			}
			p.Plan(func(kind string, n int) etcdfake.Fate {
				if kind == "remove" && (n == 1 || c.warns) {
					return c.fate
				}
				return etcdfake.Fate{}
			})
			reader, err := holds[0].Downgrade(kit.Within(t, 3*time.Second))
			if warned := strings.Contains(log.String(), "etcd has not confirmed"); err != nil || warned != c.warns {
				t.Errorf("%s: %v; logged %s", name, err, &log)
			}
			p.Plan(nil)
			if err := reader.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// An error that a retry cannot mend names the lock, its token and the entry that is left.
func TestErrorOfARefusedReleaseNamesTheEntry(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		h := mustHold(t, p, "x")
		p.KV.Refuse(func([]clientv3.Op) error { return rpctypes.ErrPermissionDenied })
		err := h.Release(t.Context())
		if !errors.Is(err, rpctypes.ErrPermissionDenied) || !strings.Contains(err.Error(), `release lock "x" (token `) ||
			!strings.Contains(err.Error(), h.Key()) {
			t.Errorf("Release: %v", err)
		}
		p.KV.Refuse(nil)
	})
}
