package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/permits"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// acquired is what a call returned that asked for a permit.
type acquired struct {
	g   *Grant
	err error
}

func acquirePermit(ctx context.Context, q *Queue, r Request) <-chan acquired {
	done := make(chan acquired, 1)
	go func() { // ends with ctx
		grants, err := Set{q}.Acquire(ctx, r)
		done <- acquired{append(grants, nil)[0], err}
	}()
	return done
}

// What is not known for want of a reply is not taken for nothing: then a permit would be held beside too many others,
// or before one that was revoked has been told.
func TestPermitIsNotHeldByAReadThatIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		put     etcdfake.Fate // of the waiter's
		refused int           // which read
		revoke  bool          // the permit ahead, once the waiter is first; otherwise it is not
		peers   int           // ahead of the waiter, beside the holder
	}{
		"of its place":                         {put: etcdfake.Fate{LoseReply: true}, refused: 2},
		"of the sessions of those that went":   {refused: 2, revoke: true},
		"of what is ahead, by its first look":  {refused: 1},
		"of the mark of a waiter ahead of it":  {refused: 1, peers: 1},
		"of the limit, by one who only tries ": {refused: 1, peers: -1},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				kit.SetLimit(t, srv, 1, 1)
				ahead := kit.JoinPermit(t, srv, permitsX, 1)
				for range c.peers {
					kit.JoinPermit(t, srv, permitsX, 1)
				}
				p := start(t, srv)
				p.Plan(func(kind string, n int) (f etcdfake.Fate) {
					switch {
					case kind == "enqueue" && n == 1:
						f = c.put
					case kind == "read" && n == c.refused:
						f = denied
					}
					return f
				})
				ctx := kit.Within(t, time.Minute)
				var err error
				if c.peers < 0 {
					_, err = Set{p.permits(1, 1)}.TryAcquire(ctx, Request{})
				} else {
					done := acquirePermit(ctx, p.permits(1, 1), Request{})
					if c.revoke {
						kit.Queued(t, srv, permitsX, 2)
						ahead.Revoke()
					}
					err = (<-done).err
				}
				if status.Code(err) != codes.PermissionDenied && !errors.Is(err, rpctypes.ErrPermissionDenied) {
					t.Errorf("Acquire: %v", err)
				}
				p.Plan(nil)
			})
		})
	}
}

// The mark of the entry ahead stands before the watch of the one behind does.
func TestMarkThatNoWatchTellsIsFoundByTheLook(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		kit.SetLimit(t, srv, 2, 2)
		full := kit.JoinPermit(t, srv, permitsX, 2)
		first := acquireLater(kit.Within(t, time.Minute), start(t, srv).permits(2, 1))
		kit.Queued(t, srv, permitsX, 2)
		p := start(t, srv)
		p.PlanOne("watch", etcdfake.Fate{Request: 20 * kit.OneWay})
		second := acquireLater(kit.Within(t, time.Minute), p.permits(2, 1))
		time.Sleep(4 * kit.OneWay)
		full.Release()
		released := time.Now()
		for _, done := range []<-chan *Grant{first, second} {
			if g := <-done; g == nil || time.Since(released) > kit.Prompt {
				t.Errorf("granted %v after %v", g != nil, time.Since(released))
			}
		}
	})
}

// What comes after the mark concerns the first waiter no more than what came before it.
func TestWaiterBehindAnotherHearsItsMarkAlone(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		const rev, created = 10, 12
		put := func(createRev int64, mark int64) *clientv3.Event {
			kv := &mvccpb.KeyValue{Key: []byte("a"), CreateRevision: createRev, ModRevision: 20 + mark}
			kv.Value = []byte(layout.Value{Mode: "permit", Queued: time.Now(), Mark: mark}.Encode())
			return &clientv3.Event{Type: mvccpb.PUT, Kv: kv}
		}
		deleted := &clientv3.Event{Type: mvccpb.DELETE, Kv: &mvccpb.KeyValue{Key: []byte("a"), ModRevision: 40}}
		for name, c := range map[string]struct {
			events []*clientv3.Event
			far    bool
		}{
			"a write without a mark":           {[]*clientv3.Event{put(rev, 0)}, true},
			"a write, then a mark":             {[]*clientv3.Event{put(rev, 0), put(rev, 11)}, false},
			"the mark of an earlier entry":     {[]*clientv3.Event{put(rev-2, 8)}, true},
			"a mark, and then it is deleted":   {[]*clientv3.Event{put(rev, 11), deleted}, false},
			"a mark, and the next one at once": {[]*clientv3.Event{put(rev, 11), put(rev, 13)}, false},
		} {
			e := (&attempt{lease: p.Host.Lease()}).newEntry(p.permits(1, 1))
			e.rev, e.stage = created, placed
			w := e.wait.permit
			e.wait.ahead, w.Far, w.Created = &mvccpb.KeyValue{Key: []byte("a"), CreateRevision: rev}, true, created
			p.Plan(nil)
			if err := w.hearMark(t.Context(), c.events); err != nil || w.Far != c.far {
				t.Errorf("%s: far %v, %v", name, w.Far, err)
			}
			if n := p.Counts(); len(n) != 0 || !c.far && w.Heard != created {
				t.Errorf("%s: sent %v, heard up to %d", name, n, w.Heard)
			}
		}
	})
}

// The reply to its mark is lost, or another client has written to the entry.
func TestPermitIsHeldByItsOwnMarkAndNoOther(t *testing.T) {
	for name, written := range map[string]bool{"its reply is lost": false, "written to by another client": true} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				first := mustAcquire(t, start(t, srv).permits(1, 1))
				p := start(t, srv)
				waits := acquireLater(kit.Within(t, time.Minute), p.permits(1, 1))
				kit.Queued(t, srv, permitsX, 2)
				own := srv.Keys(permitsX)[1]
				if written {
					put := clientv3.OpPut(string(own.Key), "written", clientv3.WithIgnoreLease())
					if _, err := srv.Client(t).Do(t.Context(), put); err != nil {
						t.Fatal(err)
					}
				} else {
					p.PlanOne("mark", etcdfake.Fate{LoseReply: true})
				}
				mustHandOff(t, first)
				g := <-waits
				if g == nil || (g.Created == own.CreateRevision) == written {
					t.Errorf("held by %v, the entry was %v", g, own)
				}
				if kv := srv.Keys(permitsX)[0]; g.Modified != kv.ModRevision {
					t.Errorf("modified at %d, the entry at %d", g.Modified, kv.ModRevision)
				}
				mustHandOff(t, g)
			})
		})
	}
}

// While its mark is under way, another client puts another entry at its key, which has a mark.
func TestPermitIsNotHeldByTheMarkOfAnotherEntryAtItsKey(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		first, p := mustAcquire(t, start(t, srv).permits(1, 1)), start(t, srv)
		done := acquireLater(kit.Within(t, time.Minute), p.permits(1, 1))
		kit.Queued(t, srv, permitsX, 2)
		own := string(srv.Keys(permitsX)[1].Key)
		p.PlanOne("mark", etcdfake.Fate{Request: 10 * kit.OneWay})
		mustHandOff(t, first)
		time.Sleep(4 * kit.OneWay)
		srv.Delete(own)
		srv.Put(own, layout.Value{Mode: "permit", Queued: time.Now(), Mark: 1}.Encode())
		time.Sleep(kit.LockDelay)
		if len(done) > 0 {
			t.Error("held beside the other entry")
		}
		srv.Delete(own)
		mustHandOff(t, <-done)
	})
}

// More sessions have ended than one Txn compares: the lock delay passes instead.
func TestPermitDelaysForMoreSessionsThanItsTxnCompares(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		const n = permits.MaxSessions + 1
		kit.SetLimit(t, srv, n, n)
		var ahead []*kit.Peer
		for range n {
			ahead = append(ahead, kit.JoinPermit(t, srv, permitsX, 1))
		}
		p := start(t, srv)
		waits := acquireLater(kit.Within(t, time.Minute), p.permits(n, n))
		kit.Queued(t, srv, permitsX, n+1)
		p.Plan(nil)
		for _, a := range ahead {
			a.Release()
		}
		left := time.Now()
		g := <-waits
		if after := time.Since(left); after < kit.LockDelay || after > kit.LockDelay+kit.Prompt {
			t.Errorf("held after %v", after)
		}
		if sent := p.Counts(); sent["mark"] != 1 {
			t.Errorf("sent %v", sent)
		}
		mustHandOff(t, g)
	})
}

// One that gives up in that state marks what it has waited for, by one Txn; one that nothing is ahead of marks nothing.
func TestPermitMarksAsItLeavesOnlyIfItIsTheFirstWaiter(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		g := mustAcquire(t, p.permits(1, 1))
		e, ahead := g.entry, &mvccpb.KeyValue{Key: []byte("a"), CreateRevision: 1}
		for name, c := range map[string]struct {
			ahead *mvccpb.KeyValue
			far   bool
			mod   int64
			from  int64 // what went before was judged; 0: that is not known
			sent  int
		}{
			"first waiter":     {ahead, false, 0, 5, 1},
			"nothing is ahead": {nil, false, 0, 5, 0},
			"it has its mark":  {ahead, false, 7, 5, 0},
			"it does not know what it has waited for": {ahead, false, 0, 0, 0},
			"far": {ahead, true, 0, 0, 0},
		} {
			w := e.wait.permit
			e.stage, e.wait.ahead, w.Far, w.mod = placed, c.ahead, c.far, c.mod
			w.Account = permits.Account{Served: c.from}
			commits := 0
			p.Link.Plan(func(call etcdfake.Call) etcdfake.Fate {
				if call.Method == "Txn" {
					commits++
				}
				return etcdfake.Fate{}
			})
			if err := w.markToLeave(t.Context()); err != nil || commits != c.sent {
				t.Errorf("%s: %d Txns, %v", name, commits, err)
			}
		}
		p.Plan(nil)
		e.stage, e.wait.ahead = held, nil
		mustHandOff(t, g)
	})
}
