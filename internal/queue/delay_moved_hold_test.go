package queue_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// The claim of what was attached names the session that holds. How long those behind wait depends on that one's session
// key, whatever has become of the session that has queued, and its delays count.
func TestDelayBehindWhatWasAttachedIsThatOfItsSession(t *testing.T) {
	const long = 5 * time.Second
	for name, c := range map[string]struct {
		firstEnds  bool // the session that has queued
		revoke     bool // the lease of what was attached; otherwise the entry is deleted by hand
		longDelay  bool // of the session that has attached
		late       bool // who waits comes after it has gone
		want, most time.Duration
	}{
		"its lease is revoked, and the first session lives": {revoke: true, want: kit.LockDelay},
		"the same, and the first session is closed":         {firstEnds: true, revoke: true, want: kit.LockDelay},
		"the same, for a newcomer":                          {firstEnds: true, revoke: true, late: true, want: kit.LockDelay},
		"its entry is deleted, and the first is closed": {
			firstEnds: true, want: lease.ToldWithin(kit.LockDelay),
		},
		"the same, for a newcomer, too": {firstEnds: true, late: true, want: lease.ToldWithin(kit.LockDelay)},
		"it has a longer delay":         {revoke: true, longDelay: true, want: long},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				ticket, h, p := detached(t, srv)
				q := holdtest.Start(t, srv, func(o *session.Options) {
					if c.longDelay {
						o.LockDelay = long
					}
				})
				next := holdtest.Start(t, srv)
				again := q.MustAttach(t, ticket, hold.Request{})
				if c.firstEnds {
					holdtest.MustClose(t, p)
				}
				if !c.late {
					waits := holdtest.AcquireLater(t.Context(), next.Queue("x"))
					kit.Queued(t, srv, holdtest.EntriesX, 2)
					time.Sleep(time.Minute) // the look before tells nothing of what follows
					end(t, srv, q, again, c.revoke)
					checkWaited(t, srv, (<-waits), h.Key(), c.want)
					return
				}
				end(t, srv, q, again, c.revoke)
				checkWaited(t, srv, (<-holdtest.AcquireLater(t.Context(), next.Queue("x"))), h.Key(), c.want)
			})
		})
	}
}

// end ends what was attached without a release: its process hears nothing of it, so it does not remove its claim.
func end(t *testing.T, srv *etcdfake.Server, p *holdtest.Process, h *hold.Hold, revoke bool) {
	t.Helper()
	p.Link.BlackHole()
	if l := p.Sess.Lease(); revoke {
		srv.Revoke(l)
	} else {
		srv.Delete(h.Key())
	}
}

// checkWaited checks how long after the end of an entry the next one has held.
func checkWaited(t *testing.T, srv *etcdfake.Server, r holdtest.Result, key string, want time.Duration) {
	t.Helper()
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	waited := r.At.Sub(kit.DeletedAt(t, srv, key))
	if waited < want || waited > want+kit.Prompt {
		t.Errorf("held after %v, want %v", waited, want)
	}
	holdtest.MustRelease(t, r.H)
}

// One claim of a session speaks for all of that session, and one that was moved for itself: not for the others with
// that session in their keys, and they not for it.
func TestMovedClaimSpeaksForItselfAlone(t *testing.T) {
	for name, moved := range map[string]int{"the older one is moved": 0, "the younger one is moved": 1} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p, q, next := holdtest.Start(t, srv), holdtest.Start(t, srv), holdtest.Start(t, srv)
				readers := []*hold.Hold{holdtest.MustAcquire(t, p.Readers("x")), holdtest.MustAcquire(t, p.Readers("x"))}
				again := q.MustAttach(t, holdtest.MustDetach(t, readers[moved], time.Hour), hold.Request{})
				waits := holdtest.AcquireLater(t.Context(), next.Queue("x"))
				kit.Queued(t, srv, holdtest.EntriesX, 3)
				for _, each := range []*holdtest.Process{p, q} {
					each.Link.BlackHole()
				}
				srv.Revoke(p.Sess.Lease()) // p's other reader goes with its lease; of q's the session lives
				srv.Delete(again.Key())
				checkWaited(t, srv, (<-waits), again.Key(), lease.ToldWithin(kit.LockDelay))
			})
		})
	}
}
