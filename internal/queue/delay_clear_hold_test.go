package queue_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// An administrator moves the first entry of a queue to a lease of its own while its clear is on its way. That entry
// keeps its create revision, and goes soon: it must not hold, nor make room for those behind it.
func TestEntryThatIsMovedInItsDelayNeitherHoldsNorClears(t *testing.T) {
	for name, vanish := range map[string]bool{"of a session that is gone": false, "of one that lives": true} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				former := kit.Join(t, srv, holdtest.EntriesX)
				if vanish {
					former.Vanish()
				} else {
					former.Revoke()
				}
				done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
				kit.Queued(t, srv, holdtest.EntriesX, 1)
				p.PlanAll("clear", etcdfake.Fate{Request: 10 * kit.OneWay})
				for p.Counts()["clear"] == 0 { // until then a look would find what follows
					time.Sleep(kit.OneWay)
				}
				own := srv.Keys(holdtest.EntriesX)[0]
				lease, err := srv.Client(t).Grant(t.Context(), 3)
				if err != nil {
					t.Fatal(err)
				}
				move := clientv3.OpPut(string(own.Key), string(own.Value), clientv3.WithLease(lease.ID))
				if _, err := srv.Client(t).Txn(t.Context()).Then(move,
					clientv3.OpDelete(kit.ClaimOf(string(own.Key)))).Commit(); err != nil {
					t.Fatal(err)
				}
				moved := time.Now()
				for len(srv.Keys(string(own.Key))) > 0 && len(done) == 0 {
					if len(srv.Keys(former.Claim)) == 0 {
						t.Fatalf("%v after it was moved, the entry has deleted a claim", time.Since(moved))
					}
					time.Sleep(kit.OneWay)
				}
				r := <-done
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				if r.H.Created() == own.CreateRevision {
					t.Errorf("held by the entry that was moved, %v after that", r.At.Sub(moved))
				}
				holdtest.MustRelease(t, r.H)
				kit.NothingStands(t, srv)
			})
		})
	}
}

// A former holder that is late may have written between the last look and the clear. So the revision from which on the
// next one holds is that of the clear.
func TestHoldAfterADelayBeginsWithTheClear(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ahead := kit.Join(t, srv, holdtest.EntriesX)
		done := holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		ahead.Revoke()
		h := holdtest.Granted(t, srv, done).H
		var cleared int64
		for _, c := range srv.History(ahead.Claim) {
			if c.Deleted {
				cleared = c.Revision
			}
		}
		if cleared == 0 || h.AcquiredRevision() != cleared {
			t.Errorf("held from revision %d on, and cleared at %d", h.AcquiredRevision(), cleared)
		}
		holdtest.MustRelease(t, h)
	})
}

// A process with a thousand readers dies. All its claims say the same, and have one session key, so two looks are
// enough, and one at the end of the delay.
func TestManyDeadClaimsOfOneSessionCostThreeLooks(t *testing.T) {
	const n, perClear = 1000, queue.MaxOps - 1
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		dead := kit.JoinReader(t, srv, holdtest.EntriesX)
		for i := range n - 1 {
			srv.Put(strings.TrimSuffix(dead.Claim, "AAAAAAAAAAAAAAAA")+fmt.Sprintf("%016d", i), layout.Claim{}.Encode())
		}
		dead.Revoke()
		p := holdtest.Start(t, srv)
		p.Plan(nil)
		began := time.Now()
		h := holdtest.MustAcquire(t, p.Queue("x"))
		if sent := p.Counts(); sent["read"] != 2+1 || sent["clear"] != (n+perClear-1)/perClear {
			t.Errorf("sent %v", sent)
		}
		if took := time.Since(began); took < kit.LockDelay || took > kit.LockDelay+kit.Prompt {
			t.Errorf("held after %v", took)
		}
		holdtest.MustRelease(t, h)
		kit.NothingStands(t, srv)
	})
}

// Two readers are gone: the session of the first has ended, and that of the second lives, and may not know.
func TestEndOfOneSessionSaysNothingOfAnother(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ended, lives := kit.JoinReader(t, srv, holdtest.EntriesX), kit.JoinReader(t, srv, holdtest.EntriesX)
		ended.Revoke()
		srv.Delete(lives.Key)
		began := time.Now()
		h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Queue("x"))
		if took := time.Since(began); took < kit.ToldWithin {
			t.Errorf("held after %v, want %v", took, kit.ToldWithin)
		}
		holdtest.MustRelease(t, h)
		kit.NothingStands(t, srv)
	})
}

// One look shows all claims ahead, so their delays run together. What they say is read in several looks if they are of
// many sessions, and several requests delete them.
func TestManyDeadClaimsCostOneDelay(t *testing.T) {
	const perLook, perClear = (queue.MaxOps - 1) / 2, queue.MaxOps - 1
	for name, join := range map[string]func(*testing.T, *etcdfake.Server, string) *kit.Peer{
		"readers": kit.JoinReader, "writers": kit.Join,
	} {
		for _, n := range []int{1, 100, 1000} {
			t.Run(fmt.Sprint(n, " ", name), func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					var gone []*kit.Peer
					for range n {
						gone = append(gone, join(t, srv, holdtest.EntriesX))
					}
					for _, peer := range gone {
						peer.Revoke()
					}
					p := holdtest.Start(t, srv)
					p.Plan(nil)
					began := time.Now()
					h := holdtest.MustAcquire(t, p.Queue("x"))
					took, sent := time.Since(began), p.Counts()
					looks, clears := 1, (n+perClear-1)/perClear
					switch { // the reply to the put has shown two
					case n > 2 && name == "readers":
						looks += (n - 2 + perLook - 1) / perLook
					case n > 2:
						looks++ // for the oldest: the others have never held
					}
					looks++ // at the end of the delay
					if sent["read"] != looks || sent["clear"] != clears {
						t.Errorf("sent %v, want %d looks and %d clears", sent, looks, clears)
					}
					trips := time.Duration(1+looks+clears) * 2 * kit.OneWay
					if took < kit.LockDelay || took > kit.LockDelay+trips {
						t.Errorf("held after %v, want %v and %v", took, kit.LockDelay, trips)
					}
					holdtest.MustRelease(t, h)
					kit.NothingStands(t, srv)
				})
			})
		}
	}
}

// Whatever becomes of the request: the claims go, and the attempt holds.
func TestClearThatIsNotAnsweredIsRepeated(t *testing.T) {
	for name, fate := range map[string]etcdfake.Fate{
		"reply lost": holdtest.LostReply, "request lost": {LoseRequest: true}, "silent": holdtest.Silence,
		"no reply": {LoseReply: true, Silent: true}, "late": {Request: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				kit.Join(t, srv, holdtest.EntriesX).Revoke()
				p.PlanOne("clear", fate)
				began := time.Now()
				h := holdtest.Granted(t, srv, holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))).H
				if took := time.Since(began); took > 4*kit.LockDelay {
					t.Errorf("held after %v; sent %v", took, p.Counts())
				}
				holdtest.MustRelease(t, h)
				time.Sleep(10 * time.Second)
				kit.NothingStands(t, srv)
			})
		})
	}
}

// Two wait for the same claim. The first clears it, and the second, who is behind the first, finds nothing.
func TestClaimThatAnotherHasClearedIsNotWaitedFor(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
		former := kit.Join(t, srv, holdtest.EntriesX)
		former.Vanish()
		first := holdtest.AcquireLater(kit.Within(t, time.Minute), a.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 1)
		time.Sleep(3 * time.Second)
		second := holdtest.AcquireLater(kit.Within(t, time.Minute), b.Queue("x"))
		h := holdtest.Granted(t, srv, first).H
		holdtest.StaysQueued(t, second, "the second")
		holdtest.MustRelease(t, h)
		r := holdtest.Granted(t, srv, second)
		holdtest.Delayed(t, r, srv, h.Key(), false)
		holdtest.MustRelease(t, r.H)
		kit.NothingStands(t, srv)
	})
}

// Where the network takes no time, two readers look at the end of a delay and delete the claim in one instant. The one
// that is refused looks again, although its latest look is of that instant, too.
func TestReadersClearAClaimInOneInstant(t *testing.T) {
	for range 20 {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			dead := kit.Join(t, srv, holdtest.EntriesX)
			dead.Revoke()
			var all []<-chan holdtest.Result
			for range 4 {
				p := holdtest.Start(t, srv)
				p.Link.Delay(0)
				all = append(all, holdtest.AcquireLater(kit.Within(t, time.Minute), p.Readers("x")))
			}
			for _, done := range all {
				r := <-done
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				holdtest.MustRelease(t, r.H)
			}
		})
	}
}
