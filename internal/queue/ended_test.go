package queue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/holdtest"
	"github.com/holdfast-go/holdfast/internal/queue"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/internal/watching"
)

// endsInOrder removes the entry of a peer, and then ends its lease, as Close does.
func endsInOrder(p *kit.Peer) {
	p.Release()
	p.Revoke()
}

// A session ends while others are ahead of the waiter, too. How it goes says nothing of a holder unless its entry stood
// to the end, and could hold.
func TestSessionThatEndsAheadDelaysOnlyIfItMayHaveHeld(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(srv *etcdfake.Server, writer, reader *kit.Peer)
		delay bool
	}{
		"closed while it waits": {func(_ *etcdfake.Server, writer, reader *kit.Peer) {
			endsInOrder(reader)
			writer.Release()
		}, false},
		"closed after it held": {func(_ *etcdfake.Server, writer, reader *kit.Peer) {
			writer.Release()
			endsInOrder(reader)
		}, false},
		"revoked while it waits": {func(_ *etcdfake.Server, writer, reader *kit.Peer) {
			reader.Revoke()
			writer.Release()
		}, false},
		"revoked while it held": {func(_ *etcdfake.Server, writer, reader *kit.Peer) {
			writer.Release()
			reader.Revoke()
		}, true},
		"revoked while it held, its key deleted by hand before": {func(srv *etcdfake.Server, writer, reader *kit.Peer) {
			srv.Delete(fmt.Sprintf("holdfast/session/%x", int64(reader.Lease)))
			writer.Release()
			reader.Revoke()
		}, true},
	} {
		for _, between := range []int{0, 1, 40, 5000} {
			t.Run(fmt.Sprintf("%s, after %d writes", name, between), func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					writer := kit.Join(t, srv, holdtest.EntriesX)
					reader, last := kit.JoinReader(t, srv, holdtest.EntriesX), kit.JoinReader(t, srv, holdtest.EntriesX)
					done := holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Queue("x"))
					kit.Queued(t, srv, holdtest.EntriesX, 4)
					writes(srv, between)
					c.end(srv, writer, reader)
					writes(srv, between)
					last.Release()
					holdtest.Delayed(t, holdtest.Granted(t, srv, done), srv, last.Key, c.delay)
				})
			})
		}
	}
}

// delayedFor checks for how long a waiter delayed after the entry ahead had left.
func delayedFor(t *testing.T, srv *etcdfake.Server, r holdtest.Result, ahead *kit.Peer, want time.Duration) {
	t.Helper()
	h := srv.History(ahead.Key)
	if after := r.At.Sub(h[len(h)-1].At); after < want || after > want+20*kit.OneWay {
		t.Errorf("granted %v after the entry ahead had left, want %v", after, want)
	}
}

// The waiter's watch tells a revision of the store every two seconds. Once the waiter has known for a lock delay that
// the session ended, that session has been told, unless there was no quorum since.
func TestSessionThatEndedALockDelayAgoDelaysForAQuarter(t *testing.T) {
	keyDeleted := func(srv *etcdfake.Server, holder *kit.Peer) {
		srv.Delete(fmt.Sprintf("holdfast/session/%x", int64(holder.Lease)))
	}
	revoked := func(_ *etcdfake.Server, holder *kit.Peer) { holder.Revoke() }
	none := func(*etcdfake.Server, *kit.Peer) {}
	for name, c := range map[string]struct {
		first  func(srv *etcdfake.Server, holder *kit.Peer)
		after  time.Duration
		second func(srv *etcdfake.Server, holder *kit.Peer)
		delay  time.Duration
	}{
		"not known":                {revoked, watching.ProgressEvery / 2, none, kit.LockDelay},
		"known for a moment":       {revoked, watching.ProgressEvery + kit.LockDelay/2, none, kit.LockDelay},
		"known for a lock delay":   {revoked, watching.ProgressEvery + kit.LockDelay*3/2, none, kit.LockDelay / 4},
		"known for a long time":    {revoked, 30 * time.Minute, none, kit.LockDelay / 4},
		"its key deleted long ago": {keyDeleted, 30 * time.Minute, revoked, kit.LockDelay},
		"it closed long ago": {func(_ *etcdfake.Server, holder *kit.Peer) { endsInOrder(holder) },
			30 * time.Minute, none, 0},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				holder, last := kit.JoinReader(t, srv, holdtest.EntriesX), kit.JoinReader(t, srv, holdtest.EntriesX)
				done := holdtest.AcquireLater(kit.Within(t, 2*time.Hour), holdtest.Start(t, srv).Queue("x"))
				kit.Queued(t, srv, holdtest.EntriesX, 3)
				time.Sleep(10 * time.Minute) // nothing is written: each watch tells the same revision
				writes(srv, 5000)
				c.first(srv, holder)
				time.Sleep(c.after)
				c.second(srv, holder)
				last.Release()
				delayedFor(t, srv, holdtest.Granted(t, srv, done), last, c.delay)
			})
		})
	}
}

func writes(srv *etcdfake.Server, n int) {
	for range n {
		srv.Put("other", "")
	}
}

// An older release of this package has put it, say. So nothing tells when its lease ended.
func TestEntryAheadWhoseSessionKeyNeverStoodDelays(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		without := kit.JoinAs(t, srv, holdtest.EntriesX, func(id clientv3.LeaseID) string {
			return fmt.Sprintf("!s%x-AAAAAAAAAAAAAAAA", int64(id))
		})
		last := kit.JoinReader(t, srv, holdtest.EntriesX)
		done := holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 3)
		without.Release()
		last.Release()
		holdtest.Delayed(t, holdtest.Granted(t, srv, done), srv, last.Key, true)
	})
}

// A waiter whose entry was deleted by hand delays. That the session ahead has ended in order does not shorten it.
func TestLockDelayThatRunsIsNotShortenedByASessionThatEndsInOrder(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		ahead, last := kit.JoinReader(t, srv, holdtest.EntriesX), kit.JoinReader(t, srv, holdtest.EntriesX)
		tells := kit.JoinReader(t, srv, holdtest.EntriesX)
		done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 4)
		srv.Delete(string(srv.Keys(holdtest.EntriesX)[3].Key))
		tells.Release() // it reads that its entry is gone, and queues again
		kit.Queued(t, srv, holdtest.EntriesX, 3)
		queued := time.Now()
		endsInOrder(ahead)
		last.Release()
		if after := holdtest.Granted(t, srv, done).At.Sub(queued); after < kit.LockDelay/2 {
			t.Errorf("granted %v after it had queued again", after)
		}
	})
}

// The next goroutine of a line remembers the readers ahead of the one before, too, which queued long ago. A session
// that came and went since then has ended in order.
func TestNextInALineDoesNotDelayForASessionThatCameAndWent(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		stays, q := kit.JoinReader(t, srv, holdtest.EntriesX), holdtest.Start(t, srv).Queue("x")
		first, giveUp := context.WithCancel(ctx)
		left := holdtest.AcquireLater(first, q)
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		next := holdtest.AcquireLater(ctx, q)
		writes(srv, 1000)
		short := kit.JoinReader(t, srv, holdtest.EntriesX)
		giveUp()
		<-left
		time.Sleep(time.Second)
		endsInOrder(short)
		writes(srv, 500)
		stays.Release()
		holdtest.Delayed(t, holdtest.Granted(t, srv, next), srv, stays.Key, false)
	})
}

// The waiter finds the deletion by a read.
func TestSessionThatClosesBeforeTheWatchStandsDelaysNoWaiter(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(*kit.Peer)
		delay bool
	}{"closed": {endsInOrder, false}, "revoked": {(*kit.Peer).Revoke, true}} {
		for n := 1; n <= 2; n++ {
			t.Run(fmt.Sprintf("%s, of %d", name, n), func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					var ahead []*kit.Peer
					for range n {
						ahead = append(ahead, kit.Join(t, srv, holdtest.EntriesX))
					}
					p := holdtest.Start(t, srv)
					p.PlanOne("watch", etcdfake.Fate{Request: 50 * time.Millisecond})
					done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
					time.Sleep(4 * kit.OneWay)
					for _, a := range ahead {
						c.end(a)
					}
					holdtest.Delayed(t, holdtest.Granted(t, srv, done), srv, ahead[n-1].Key, c.delay)
				})
			})
		}
	}
}

// Many sessions that end delay no waiter, up to a bound.
func TestSessionsThatClosedAheadAreSearchedUpToABound(t *testing.T) {
	for n, delay := range map[int]bool{queue.MaxEnded: false, queue.MaxEnded + 1: true} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				var readers []*kit.Peer
				for range n + 1 {
					readers = append(readers, kit.JoinReader(t, srv, holdtest.EntriesX))
				}
				p := holdtest.Start(t, srv)
				done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
				kit.Queued(t, srv, holdtest.EntriesX, n+2)
				for _, r := range readers[:n] {
					endsInOrder(r)
				}
				p.Plan(nil)
				readers[n].Release()
				holdtest.Delayed(t, holdtest.Granted(t, srv, done), srv, readers[n].Key, delay)
				if sent := p.Counts(); sent["read"] > 4 {
					t.Errorf("sent %v, want four reads at most", sent)
				}
			})
		})
	}
}

// What stood at the beginning of the wait is compacted. The search begins at the last look. If the session key was gone
// by then, only time tells that the session has been told.
func TestSessionThatClosedAfterTheHistoryWasCompacted(t *testing.T) {
	const look = queue.RecheckAfter + 15*time.Second
	for name, c := range map[string]struct {
		before func(*kit.Peer)
		wait   time.Duration
		after  func(*kit.Peer)
		delay  time.Duration
	}{
		"closed after the last look":  {func(*kit.Peer) {}, look, endsInOrder, 0},
		"closed before the last look": {endsInOrder, look, func(*kit.Peer) {}, kit.LockDelay / 4},
		"closed a moment ago":         {endsInOrder, watching.ProgressEvery / 2, func(*kit.Peer) {}, kit.LockDelay},
		"revoked":                     {func(*kit.Peer) {}, look, (*kit.Peer).Revoke, kit.LockDelay},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				first, last := kit.JoinReader(t, srv, holdtest.EntriesX), kit.JoinReader(t, srv, holdtest.EntriesX)
				done := holdtest.AcquireLater(kit.Within(t, 5*time.Minute), holdtest.Start(t, srv).Queue("x"))
				kit.Queued(t, srv, holdtest.EntriesX, 3)
				c.before(first)
				srv.Put("other", "")
				srv.Compact()
				time.Sleep(c.wait)
				c.after(first)
				last.Release()
				delayedFor(t, srv, holdtest.Granted(t, srv, done), last, c.delay)
			})
		})
	}
}

// One session has more readers than session keys fit into a Txn.
func TestWriterBehindManyReadersOfOneSessionDoesNotDelay(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		readers, q := holdtest.Start(t, srv).Readers("x"), holdtest.Start(t, srv).Queue("x")
		var holds []*hold.Hold
		for range queue.MaxOps + 1 {
			holds = append(holds, holdtest.MustAcquire(t, readers))
		}
		done := holdtest.AcquireLater(ctx, q)
		kit.Queued(t, srv, holdtest.EntriesX, len(holds)+1)
		for _, h := range holds {
			holdtest.MustRelease(t, h)
		}
		holdtest.Delayed(t, holdtest.Granted(t, srv, done), srv, holds[len(holds)-1].Key(), false)
	})
}

// Its session keys do not fit into one Txn, but into several inside one.
func TestWriterBehindReadersOfManySessionsSendsOneReadToJudgeThem(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var readers []*kit.Peer
		for range 2*queue.MaxOps + 1 {
			readers = append(readers, kit.JoinReader(t, srv, holdtest.EntriesX))
		}
		p := holdtest.Start(t, srv)
		done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, len(readers)+1)
		p.Plan(nil)
		for _, r := range readers {
			r.Release()
		}
		holdtest.Delayed(t, holdtest.Granted(t, srv, done), srv, readers[len(readers)-1].Key, false)
		if sent := p.Counts(); sent["committed read"] != 1 || sent["read"] != 0 {
			t.Errorf("sent %v, want one read", sent)
		}
	})
}

// An entry that is ahead after all is waited for, however those behind it have gone.
func TestWaiterThatFindsAnotherAheadDoesNotDelayForOneThatWaited(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		first, second := kit.Join(t, srv, holdtest.EntriesX), kit.Join(t, srv, holdtest.EntriesX)
		done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 3)
		p.Unheard(srv, second.Revoke)
		time.Sleep(time.Second / 2)
		first.Release()
		holdtest.Delayed(t, holdtest.Granted(t, srv, done), srv, first.Key, false)
	})
}
