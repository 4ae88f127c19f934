package queue

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// acquireErr is acquireLater for a call that fails.
func acquireErr(ctx context.Context, q *Queue) <-chan error {
	done := make(chan error, 1)
	go func() { // ends with ctx
		_, err := Set{q}.Acquire(ctx, Request{})
		done <- err
	}()
	return done
}

// A judgment that cannot read what it needs is none: the call ends with what etcd says.
func TestWaiterDoesNotHoldByAJudgmentThatWasRefused(t *testing.T) {
	for name, c := range map[string]struct {
		peers   int
		unheard bool
		compact bool // before the first read that follows
		revoked bool // the last of them
		refused int  // which of the reads that follow
	}{
		"what stood at the last look":          {peers: 3, unheard: true, refused: 2},
		"the sessions of those":                {peers: 3, unheard: true, refused: 3},
		"what stands, history being compacted": {peers: 1, compact: true, refused: 2},
		"the entry, after the lock delay":      {peers: 1, revoked: true, refused: 2},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				var ahead []*kit.Peer
				for range c.peers {
					ahead = append(ahead, kit.Join(t, srv, entriesX))
				}
				done := acquireErr(kit.Within(t, time.Minute), p.queue("x"))
				kit.Queued(t, srv, entriesX, c.peers+1)
				plan := func() {
					p.Plan(func(kind string, n int) (f etcdfake.Fate) {
						switch {
						case kind == "read" && n == c.refused:
							f = denied
						case kind == "read" && n == 1 && c.compact:
							f.Request = 20 * kit.OneWay
						}
						return f
					})
				}
				leave := func() {
					for _, a := range ahead {
						if c.revoked {
							a.Revoke()
						} else {
							a.Release()
						}
					}
				}
				if c.unheard {
					p.Unheard(srv, leave)
					plan()
				} else {
					plan()
					leave()
				}
				if c.compact {
					time.Sleep(4 * kit.OneWay)
					srv.Put("other", "")
					srv.Compact()
				}
				if err := <-done; status.Code(err) != codes.PermissionDenied {
					t.Errorf("Acquire: %v; sent %v", err, p.Counts())
				}
				p.Plan(nil)
			})
		})
	}
}

// What stood ahead at the last look is known, and whether the sessions of those stood when the queue was free is not.
func TestLockDelayWhereHistoryIsCompactedWhileSessionsAreJudged(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		ahead := []*kit.Peer{kit.Join(t, srv, entriesX), kit.Join(t, srv, entriesX)}
		done := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		kit.Queued(t, srv, entriesX, 3)
		p.Unheard(srv, func() {
			for _, a := range ahead {
				a.Release()
			}
		})
		p.Plan(func(kind string, n int) (f etcdfake.Fate) {
			if kind == "read" && n == 3 {
				f.Request = 10 * kit.OneWay
			}
			return f
		})
		for p.Counts()["read"] < 3 {
			time.Sleep(time.Millisecond)
		}
		srv.Put("other", "")
		srv.Compact()
		compacted := time.Now()
		g := <-done
		if after := time.Since(compacted); g == nil || after < kit.LockDelay || after > kit.LockDelay+kit.Prompt {
			t.Errorf("granted %v after %v", g != nil, after)
		}
		mustHandOff(t, g)
	})
}

// One read finds what stands ahead now, which does not include the entry itself.
func TestJudgmentOfACompactedHistoryWatchesNothingMore(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		ahead := kit.Join(t, srv, entriesX)
		done := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		p.PlanOne("read", etcdfake.Fate{Request: 10 * kit.OneWay})
		ahead.Release()
		time.Sleep(4 * kit.OneWay)
		srv.Put("other", "")
		srv.Compact()
		g := <-done
		// The judgment at a revision, that of the present, and the end of the delay.
		if n := p.Counts(); n["watch"] != 0 || n["read"] != 3 {
			t.Errorf("sent %v", n)
		}
		mustHandOff(t, g)
	})
}

// A reader ahead was revoked, and the last one is released. While the waiter searches for when that was, its own entry
// is deleted. It queues again at once, not after the lock delay that runs meanwhile.
func TestWaiterWhoseEntryIsDeletedDuringAnInquestQueuesAgainAtOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		holder, last := kit.JoinReader(t, srv, entriesX), kit.JoinReader(t, srv, entriesX)
		done := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		kit.Queued(t, srv, entriesX, 3)
		time.Sleep(time.Second)
		own := string(srv.Keys(entriesX)[2].Key)
		if own[len(entriesX)] == '!' {
			own = string(srv.Keys(entriesX)[0].Key)
		}
		holder.Revoke()
		for range 100 {
			srv.Put("other", "")
		}
		p.Plan(func(kind string, n int) (f etcdfake.Fate) {
			if n == 2 && (kind == "read" || kind == "committed read") {
				f.Request = 20 * kit.OneWay
			}
			return f
		})
		last.Release()
		time.Sleep(6 * kit.OneWay)
		srv.Delete(own)
		deleted := time.Now()
		g := <-done
		if after := time.Since(deleted); g == nil || after < kit.LockDelay || after > kit.LockDelay*3/2 {
			t.Errorf("granted %v after %v; sent %v", g != nil, after, p.Counts())
		}
		mustHandOff(t, g)
	})
}

// An administrator removes the entry while its lock delay runs.
func TestWaiterWhoseEntryIsDeletedInItsLockDelayQueuesAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		ahead := kit.Join(t, srv, entriesX)
		done := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		ahead.Revoke()
		time.Sleep(kit.LockDelay / 2)
		own := srv.Keys(entriesX)[0]
		srv.Delete(string(own.Key))
		g := <-done
		if g == nil || g.Created <= own.CreateRevision {
			t.Fatalf("held by %+v", g)
		}
		mustHandOff(t, g)
	})
}

// The reply to the put is lost, and history is compacted up to it. What stands ahead now, put right before, is waited
// for. What has gone before is not known, which costs the lock delay once that has gone.
func TestEntryWhosePlaceIsCompactedWaitsForWhatStands(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		holder, p := start(t, srv), start(t, srv)
		h := mustAcquire(t, holder.queue("x"))
		p.PlanOne("enqueue", etcdfake.Fate{LoseReply: true})
		done := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		time.Sleep(kit.OneWay + time.Millisecond)
		if kvs := srv.Keys(entriesX); len(kvs) != 2 || max(kvs[0].CreateRevision, kvs[1].CreateRevision) != h.Created+1 {
			t.Fatalf("in the queue: %v: this tests nothing", kvs)
		}
		srv.Put("other", "")
		srv.Compact()
		time.Sleep(3 * kit.LockDelay)
		if n := p.Counts()["watch"]; len(done) > 0 || n != 1 {
			t.Fatalf("granted %v; %d watches", len(done) > 0, n)
		}
		mustHandOff(t, h)
		released := time.Now()
		g := <-done
		if after := time.Since(released); after < kit.LockDelay-kit.OneWay || after > kit.LockDelay+kit.Prompt {
			t.Errorf("granted after %v", after)
		}
		mustHandOff(t, g)
	})
}

// The same, and what stands now cannot be read: that is told.
func TestEntryWhosePlaceIsCompactedAndCannotBeReadFails(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		p.Plan(func(kind string, n int) (f etcdfake.Fate) {
			switch {
			case kind == "enqueue" && n == 1:
				f.LoseReply = true
			case kind == "read" && n == 3: // after that which finds the entry, and that of its place then
				f = denied
			}
			return f
		})
		done := acquireErr(kit.Within(t, time.Minute), p.queue("x"))
		time.Sleep(kit.OneWay + time.Millisecond)
		srv.Put("other", "")
		srv.Compact()
		if err := <-done; status.Code(err) != codes.PermissionDenied {
			t.Errorf("Acquire: %v", err)
		}
	})
}
