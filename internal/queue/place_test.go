package queue

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/session"
)

// How the entry ahead leaves, seen by a waiter whose watch works.
func TestLockDelayFollowsALeaseThatEndedAndNothingElse(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(srv *etcdfake.Server, ahead *process, h *Hold)
		delay bool
	}{
		"released":        {func(_ *etcdfake.Server, _ *process, h *Hold) { _ = h.Release(context.Background()) }, false},
		"closed":          {func(_ *etcdfake.Server, p *process, _ *Hold) { _ = p.sess.Close(context.Background()) }, false},
		"deleted by hand": {func(srv *etcdfake.Server, _ *process, h *Hold) { srv.Delete(h.Key()) }, false},
		"revoked":         {func(srv *etcdfake.Server, _ *process, h *Hold) { srv.Revoke(h.Lease()) }, true},
		"expired":         {func(_ *etcdfake.Server, p *process, _ *Hold) { p.link.Cut() }, true},
		"given up unheard": {func(_ *etcdfake.Server, p *process, h *Hold) {
			lease.Open(p.sess.Ref()).Lease().Lose(holdfast.CauseExpired, nil)
		}, false},
		"revoked, its session key deleted by hand before": {func(srv *etcdfake.Server, p *process, h *Hold) {
			p.link.Cut() // or it is put again
			srv.Delete(p.sessionKey())
			time.Sleep(oneWay)
			srv.Revoke(h.Lease())
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				a, b := start(t, srv), start(t, srv)
				h := mustAcquire(t, a.queue("x"))
				done := acquireLater(within(t, time.Minute), b.queue("x"))
				queued(t, srv, entriesX, 2)
				c.leave(srv, a, h)
				delayed(t, granted(t, srv, done), srv, &peer{srv: srv, key: h.Key()}, c.delay)
			})
		})
	}
}

// The watch does not tell when the entry ahead left: it was gone when the watch
// stood, or the watch has failed.
func TestLockDelayWhereTheRevisionOfTheDeletionIsNotKnown(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(ahead *peer)
		delay bool
	}{
		"released": {(*peer).release, false},
		"revoked":  {(*peer).revoke, true},
	} {
		t.Run(name+" before the watch stands", func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				ahead := join(t, srv, entriesX)
				p.planOne("watch", etcdfake.Fate{Request: 50 * time.Millisecond})
				done := acquireLater(within(t, time.Minute), p.queue("x"))
				time.Sleep(4 * oneWay)
				c.leave(ahead)
				delayed(t, granted(t, srv, done), srv, ahead, c.delay)
			})
		})
		t.Run(name+" and the watch fails", func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				ahead := join(t, srv, entriesX)
				done := acquireLater(within(t, time.Minute), p.queue("x"))
				queued(t, srv, entriesX, 2)
				p.unheard(srv, func() { c.leave(ahead) })
				delayed(t, granted(t, srv, done), srv, ahead, c.delay)
			})
		})
	}
}

// Of several that stood ahead one may have been revoked, and those behind it may
// have held since, before the waiter looks again.
func TestLockDelayWhereAnyOfThoseAheadWasRevoked(t *testing.T) {
	for revoked := range 4 {
		t.Run(fmt.Sprint(revoked), func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				var ahead []*peer
				for range 3 {
					ahead = append(ahead, join(t, srv, entriesX))
				}
				done := acquireLater(within(t, time.Minute), p.queue("x"))
				queued(t, srv, entriesX, 4)
				p.unheard(srv, func() {
					for i, a := range ahead {
						if i == revoked {
							a.revoke()
						} else {
							a.release()
						}
					}
				})
				delayed(t, granted(t, srv, done), srv, ahead[2], revoked < 3)
			})
		})
	}
}

func TestOneOfMoreThanSixtyFourAheadIsPresumedRevoked(t *testing.T) {
	for n, delay := range map[int]bool{maxJudged: false, maxJudged + 1: true} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				var ahead []*peer
				for range n {
					ahead = append(ahead, join(t, srv, entriesX))
				}
				done := acquireLater(within(t, time.Minute), p.queue("x"))
				queued(t, srv, entriesX, n+1)
				p.unheard(srv, func() {
					for _, a := range ahead {
						a.release()
					}
				})
				delayed(t, granted(t, srv, done), srv, ahead[n-1], delay)
			})
		})
	}
}

func TestLockDelayWhereTheHistoryIsCompacted(t *testing.T) {
	compact := func(srv *etcdfake.Server) {
		srv.Put("other", "")
		srv.Compact()
	}
	t.Run("since the last look", func(t *testing.T) {
		inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
			p := start(t, srv)
			join(t, srv, entriesX).release()
			first, ahead := join(t, srv, entriesX), join(t, srv, entriesX)
			done := acquireLater(within(t, time.Minute), p.queue("x"))
			queued(t, srv, entriesX, 3)
			p.unheard(srv, func() {
				first.release()
				ahead.release()
				compact(srv)
			})
			delayed(t, granted(t, srv, done), srv, ahead, true)
		})
	})
	t.Run("since the deletion", func(t *testing.T) {
		inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
			p := start(t, srv)
			ahead := join(t, srv, entriesX)
			done := acquireLater(within(t, time.Minute), p.queue("x"))
			queued(t, srv, entriesX, 2)
			p.planOne("read", etcdfake.Fate{Request: 50 * time.Millisecond}) // that of judge
			ahead.release()
			time.Sleep(4 * oneWay)
			compact(srv)
			delayed(t, granted(t, srv, done), srv, ahead, true)
		})
	})
}

func TestForeignEntryCostsNoLockDelay(t *testing.T) {
	for name, key := range map[string]func(clientv3.LeaseID) string{
		"etcd's own Mutex":  func(id clientv3.LeaseID) string { return fmt.Sprintf("%x", int64(id)) },
		"a name":            func(clientv3.LeaseID) string { return "host-1" },
		"a UUID":            func(clientv3.LeaseID) string { return "6ba7b810-9dad-11d1-80b4-00c04fd430c8" },
		"a lease and a PID": func(id clientv3.LeaseID) string { return fmt.Sprintf("%x-4711", int64(id)) },
	} {
		for how, leave := range map[string]func(*peer){"released": (*peer).release, "revoked": (*peer).revoke} {
			t.Run(name+" "+how, func(t *testing.T) {
				inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
					p := start(t, srv)
					ahead := joinAs(t, srv, "theirs/", key)
					done := acquireLater(within(t, time.Minute), At(lease.Open(p.sess.Ref()), "lock", "theirs"))
					queued(t, srv, "theirs/", 2)
					leave(ahead)
					delayed(t, granted(t, srv, done), srv, ahead, false)
				})
			})
		}
	}
}

// A waiter right behind an entry that stands is not delayed by what happened
// ahead of that one: its owner judges that.
func TestWaiterBehindAnEntryThatStandsWaitsForThat(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		first, ahead := join(t, srv, entriesX), join(t, srv, entriesX)
		done := acquireLater(within(t, time.Minute), p.queue("x"))
		queued(t, srv, entriesX, 3)
		first.revoke()
		time.Sleep(time.Minute / 2)
		ahead.release()
		delayed(t, granted(t, srv, done), srv, ahead, false)
	})
}

// A lock delay may run while the waiter waits for another entry.
func TestLockDelayRunsOnBehindAnotherEntry(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		first, second, ahead := join(t, srv, entriesX), join(t, srv, entriesX), join(t, srv, entriesX)
		done := acquireLater(within(t, time.Minute), p.queue("x"))
		queued(t, srv, entriesX, 4)
		p.unheard(srv, func() {
			second.revoke()
			ahead.release()
		})
		revoked := time.Now()
		time.Sleep(lockDelay / 2)
		first.release()
		if after := granted(t, srv, done).at.Sub(revoked); after < lockDelay || after > lockDelay+prompt {
			t.Errorf("granted %v after the revocation", after)
		}
	})
}

// notBefore checks that an entry stood for that long before it was granted.
func notBefore(t *testing.T, srv *etcdfake.Server, r result, d time.Duration) {
	t.Helper()
	history := srv.History(r.h.Key())
	i := slices.IndexFunc(history, func(c etcdfake.Change) bool { return c.Revision == r.h.Token().Revision() })
	if stood := r.at.Sub(history[i].At); stood < d || stood > d+prompt {
		t.Errorf("granted %v after its entry was put, want %v", stood, d)
	}
}

func TestWaiterWhoseEntryWasDeletedWaitsForTheLockDelayAfterItIsQueuedAnew(t *testing.T) {
	for name, leave := range map[string]func(*peer){"released": (*peer).release, "revoked": (*peer).revoke} {
		t.Run("the entry ahead was "+name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				ahead := join(t, srv, entriesX)
				done := acquireLater(within(t, time.Minute), p.queue("x"))
				queued(t, srv, entriesX, 2)
				own := string(srv.Keys(entriesX)[1].Key)
				srv.Delete(own)
				leave(ahead)
				r := granted(t, srv, done)
				if r.h.Token().Revision() == srv.History(own)[0].Revision {
					t.Error("the hold is of the entry that was deleted")
				}
				notBefore(t, srv, r, lockDelay)
			})
		})
	}
}

func TestNegativeLockDelayIsNone(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv, func(o *session.Options) { o.LockDelay = -1 })
		ahead := join(t, srv, entriesX)
		done := acquireLater(within(t, time.Minute), p.queue("x"))
		queued(t, srv, entriesX, 2)
		ahead.revoke()
		delayed(t, granted(t, srv, done), srv, ahead, false)
	})
}
