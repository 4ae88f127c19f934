package queue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// What delays a waiter is a claim that is left: for the lock delay if its session key has gone, too; otherwise until
// its holder has been told, and deletes it, or must have been told.
func TestLockDelayFollowsAClaimThatIsLeft(t *testing.T) {
	const tick = time.Second // between two looks
	for name, c := range map[string]struct {
		leave       func(srv *etcdfake.Server, ahead *holdtest.Process, h *hold.Hold)
		least, most time.Duration
	}{
		"released": {func(_ *etcdfake.Server, _ *holdtest.Process, h *hold.Hold) {
			_ = h.Release(context.Background())
		}, 0, 0},
		"closed": {func(_ *etcdfake.Server, p *holdtest.Process, _ *hold.Hold) {
			_ = p.Sess.Close(context.Background())
		}, 0, 0},
		"given up unheard": {func(_ *etcdfake.Server, p *holdtest.Process, h *hold.Hold) {
			p.Host.Lease().Lose(holdfast.CauseExpired, nil)
		}, 0, 0},
		"revoked": {func(srv *etcdfake.Server, _ *holdtest.Process, h *hold.Hold) {
			srv.Revoke(h.Lease())
		}, kit.LockDelay, kit.LockDelay},
		"expired": {func(_ *etcdfake.Server, p *holdtest.Process, _ *hold.Hold) {
			p.Link.Cut()
		}, kit.LockDelay, kit.LockDelay},
		"deleted by hand": {func(srv *etcdfake.Server, _ *holdtest.Process, h *hold.Hold) {
			srv.Delete(h.Key())
		}, 0, kit.LockDelay/2 + tick},
		"deleted by hand, and the holder stands still": {func(srv *etcdfake.Server, p *holdtest.Process, h *hold.Hold) {
			p.Stop()
			srv.Delete(h.Key())
			time.AfterFunc(kit.ToldWithin+tick, p.Resume)
		}, kit.ToldWithin, kit.ToldWithin},
		"deleted by hand, and then revoked": {func(srv *etcdfake.Server, p *holdtest.Process, h *hold.Hold) {
			p.Stop()
			srv.Delete(h.Key())
			time.AfterFunc(3*tick-kit.Prompt, func() { srv.Revoke(h.Lease()) })
			time.AfterFunc(kit.ToldWithin+tick, p.Resume)
		}, 3*tick + kit.LockDelay, 3*tick + kit.LockDelay},
		"revoked, its session key deleted by hand before": {func(srv *etcdfake.Server, p *holdtest.Process, h *hold.Hold) {
			p.Link.Cut() // or it is put again
			srv.Delete(p.SessionKey())
			time.Sleep(kit.OneWay)
			srv.Revoke(h.Lease())
		}, kit.LockDelay, kit.LockDelay},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
				h := holdtest.MustAcquire(t, a.Queue("x"))
				done := holdtest.AcquireLater(kit.Within(t, time.Minute), b.Queue("x"))
				kit.Queued(t, srv, holdtest.EntriesX, 2)
				c.leave(srv, a, h)
				r := holdtest.Granted(t, srv, done)
				if after := r.At.Sub(kit.DeletedAt(t, srv, h.Key())); after < c.least || after > c.most+kit.Prompt {
					t.Errorf("granted %v after the entry ahead had left, want %v to %v", after, c.least, c.most)
				}
				holdtest.MustRelease(t, r.H)
			})
		})
	}
}

// The entry ahead went before the watch was created, or while the watch had failed. A look finds what that has left.
func TestWaiterFindsByALookWhatItHasNotHeard(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(ahead *kit.Peer)
		delay bool
	}{
		"released": {(*kit.Peer).Release, false},
		"revoked":  {(*kit.Peer).Revoke, true},
	} {
		t.Run(name+" before the watch stands", func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				ahead := kit.Join(t, srv, holdtest.EntriesX)
				p.PlanOne("watch", etcdfake.Fate{Request: 50 * time.Millisecond})
				done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
				time.Sleep(4 * kit.OneWay)
				c.leave(ahead)
				holdtest.Delayed(t, holdtest.Granted(t, srv, done), srv, ahead.Key, c.delay)
			})
		})
		t.Run(name+" and the watch fails", func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				ahead := kit.Join(t, srv, holdtest.EntriesX)
				done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
				kit.Queued(t, srv, holdtest.EntriesX, 2)
				p.Unheard(srv, func() { c.leave(ahead) })
				holdtest.Delayed(t, holdtest.Granted(t, srv, done), srv, ahead.Key, c.delay)
			})
		})
	}
}

// Of several entries ahead, one may have gone with its lease, and those behind it may have held and gone, all before
// the waiter looks again.
func TestLockDelayWhereAnyOfThoseAheadWasRevoked(t *testing.T) {
	for revoked := range 4 {
		t.Run(fmt.Sprint(revoked), func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				var ahead []*kit.Peer
				for range 3 {
					ahead = append(ahead, kit.Join(t, srv, holdtest.EntriesX))
				}
				done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
				kit.Queued(t, srv, holdtest.EntriesX, 4)
				p.Unheard(srv, func() {
					for i, a := range ahead {
						if i == revoked {
							a.Revoke()
						} else {
							a.Release()
						}
					}
				})
				holdtest.Delayed(t, holdtest.Granted(t, srv, done), srv, ahead[2].Key, revoked < 3)
			})
		})
	}
}

// Who puts no claim cannot be protected.
func TestEntryWithoutAClaimCostsNoLockDelay(t *testing.T) {
	for name, key := range map[string]func(clientv3.LeaseID) string{
		"etcd's own Mutex":   func(id clientv3.LeaseID) string { return fmt.Sprintf("%x", int64(id)) },
		"a name":             func(clientv3.LeaseID) string { return "host-1" },
		"a UUID":             func(clientv3.LeaseID) string { return "6ba7b810-9dad-11d1-80b4-00c04fd430c8" },
		"an older version's": func(id clientv3.LeaseID) string { return fmt.Sprintf("%x-ABCDEFGHIJKLMNOP", int64(id)) },
		"a lease and a PID":  func(id clientv3.LeaseID) string { return fmt.Sprintf("%x-4711", int64(id)) },
	} {
		for how, leave := range map[string]func(*kit.Peer){"released": (*kit.Peer).Release, "revoked": (*kit.Peer).Revoke} {
			t.Run(name+" "+how, func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					p := holdtest.Start(t, srv)
					ahead := kit.JoinAs(t, srv, "theirs/", key)
					done := holdtest.AcquireLater(kit.Within(t, time.Minute), queue.At(p.Host, holdfast.KindLock, "theirs"))
					kit.Queued(t, srv, "theirs/", 2)
					leave(ahead)
					holdtest.Delayed(t, holdtest.Granted(t, srv, done), srv, ahead.Key, false)
				})
			})
		}
	}
}

// What happened ahead of the entry ahead costs no more than one delay, which counts from the look that shows it: that
// entry's owner has left what it found.
func TestWaiterBehindAnotherEntryDelaysForWhatThatHasLeft(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		first, ahead := kit.Join(t, srv, holdtest.EntriesX), kit.Join(t, srv, holdtest.EntriesX)
		done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 3)
		first.Revoke()
		time.Sleep(time.Minute / 2)
		ahead.Release()
		holdtest.Delayed(t, holdtest.Granted(t, srv, done), srv, ahead.Key, true)
	})
}

// Its own claim goes with its entry, so a waiter that queues again waits for those of others alone.
func TestWaiterWhoseEntryIsDeletedDelaysForOthersAlone(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(*kit.Peer)
		delay time.Duration
	}{"released": {(*kit.Peer).Release, 0}, "revoked": {(*kit.Peer).Revoke, kit.LockDelay}} {
		t.Run("the entry ahead was "+name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				ahead := kit.Join(t, srv, holdtest.EntriesX)
				done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
				kit.Queued(t, srv, holdtest.EntriesX, 2)
				own := string(srv.Keys(holdtest.EntriesX)[1].Key)
				srv.Delete(own)
				c.leave(ahead)
				r := holdtest.Granted(t, srv, done)
				if r.H.Token().Revision() == srv.History(own)[0].Revision {
					t.Error("the hold is of the entry that was deleted")
				}
				holdtest.NotBefore(t, srv, r, c.delay)
				holdtest.MustRelease(t, r.H)
				kit.NothingStands(t, srv)
			})
		})
	}
}

func TestNegativeLockDelayMeansNone(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv, func(o *session.Options) { o.LockDelay = -1 })
		ahead := kit.Join(t, srv, holdtest.EntriesX)
		srv.Put(ahead.Claim, layout.Claim{}.Encode()) // whose lock delay is off, too
		done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		ahead.Revoke()
		r := holdtest.Granted(t, srv, done)
		holdtest.Delayed(t, r, srv, ahead.Key, false)
		holdtest.MustRelease(t, r.H)
		kit.NothingStands(t, srv)
	})
}
