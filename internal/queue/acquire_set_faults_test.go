package queue_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// grantedSet receives a set, of whose entries each must be the first writer's or have only readers ahead.
func grantedSet(t *testing.T, srv *etcdfake.Server, done <-chan setResult) []*hold.Hold {
	t.Helper()
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	for _, h := range r.holds {
		kvs := srv.Keys(h.Queue().Layout().Entries)
		if h.Queue().Reader {
			kvs = slices.DeleteFunc(kvs, func(kv *mvccpb.KeyValue) bool {
				return layout.IsReader(string(kv.Key)) && string(kv.Key) != h.Key()
			})
		}
		if len(kvs) == 0 || string(kvs[0].Key) != h.Key() {
			t.Errorf("%s is held, and in etcd stand %v", h.Key(), kit.KeysOf(kvs))
		}
	}
	return r.holds
}

// Whatever becomes of one request, the set gets in once the entry ahead has gone, and leaves nothing.
func TestSetWhoseRequestIsNotAnsweredLeavesNothing(t *testing.T) {
	lostRequest := etcdfake.Fate{LoseRequest: true}
	for _, kind := range []string{"enqueue", "remove", "read", "watch"} {
		for name, fate := range map[string]etcdfake.Fate{
			"reply lost": holdtest.LostReply, "request lost": lostRequest, "silent": holdtest.Silence,
			"no reply": {LoseReply: true, Silent: true}, "late": {Request: 3 * time.Second},
		} {
			for _, ahead := range []bool{true, false} {
				t.Run(kind+" "+name, func(t *testing.T) {
					etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
						p := holdtest.Start(t, srv)
						var peer *kit.Peer
						if ahead {
							peer = kit.Join(t, srv, kit.Entries("y"))
						}
						p.PlanOne(kind, fate)
						done := acquireSetLater(kit.Within(t, time.Minute), p.Set("x", "y", "!z"))
						time.Sleep(5 * time.Second)
						if ahead {
							peer.Release()
						}
						holds := grantedSet(t, srv, done)
						if rev := holds[0].Created(); holds[1].Created() != rev || holds[2].Created() != rev {
							t.Error("the entries of the set have several create revisions")
						}
						_ = holds[1].Release(kit.Within(t, time.Minute))
						time.Sleep(time.Minute)
						kit.NothingStands(t, srv)
						if n := p.Queue("x").Used(); n != 0 {
							t.Errorf("%d keys are in use", n)
						}
					})
				})
			}
		}
	}
}

func TestSetThatGivesUpAtAnyMomentLeavesNothingAndDelaysNone(t *testing.T) {
	granted, canceled := 0, 0
	holdtest.AtEveryMoment(t, 0, 20*kit.OneWay, func(t *testing.T, srv *etcdfake.Server, offset time.Duration) {
		p := holdtest.Start(t, srv)
		x, y := kit.Join(t, srv, holdtest.EntriesX), kit.Join(t, srv, kit.Entries("y"))
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		done := acquireSetLater(ctx, p.Set("x", "y", "z"))
		time.AfterFunc(6*kit.OneWay, x.Release)
		time.AfterFunc(9*kit.OneWay, y.Release)
		time.Sleep(offset)
		giveUp()
		if r := <-done; r.err == nil {
			granted++
			holdtest.MustRelease(t, r.holds[0])
		} else if canceled++; !errors.Is(r.err, context.Canceled) {
			t.Errorf("Acquire: %v", r.err)
		}
		time.Sleep(20 * kit.OneWay)
		began := time.Now()
		h := holdtest.MustAcquireSet(t, holdtest.Start(t, srv).Set("z", "y", "x"), hold.Request{})
		if d := time.Since(began); d > kit.LockDelay/2 {
			t.Errorf("a set that comes afterwards waits for %v", d)
		}
		holdtest.MustRelease(t, h[0])
		time.Sleep(time.Minute)
		kit.NothingStands(t, srv)
	})
	if granted == 0 || canceled == 0 {
		t.Errorf("granted %d times, canceled %d times: the moments are not around the grant", granted, canceled)
	}
}

// The reply to the put is lost, and one of its entries is deleted by hand before the session asks. It holds by none of
// them, and queues again behind the other set.
func TestSetOfWhichOneEntryIsFoundQueuesAgain(t *testing.T) {
	for _, gone := range []string{"x", "y"} {
		t.Run(gone, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				p.PlanOne("enqueue", holdtest.LostReply)
				done := acquireSetLater(kit.Within(t, time.Minute), p.Set("x", "y"))
				time.Sleep(kit.OneWay + time.Millisecond)
				standing := kit.Standing(srv, gone)
				if len(standing) != 1 {
					t.Fatal("the set was not put: this tests nothing")
				}
				srv.Delete(string(standing[0].Key))
				holds := grantedSet(t, srv, done)
				if n := kit.PutsEver(srv, holdtest.EntriesX); n != 2 || holds[0].Created() == standing[0].CreateRevision {
					t.Errorf("%d entries were put, held by the one of revision %d", n, holds[0].Created())
				}
				if stood := time.Since(putAt(srv, holds[0])); stood > kit.Prompt {
					t.Errorf("held %v after its new put: its own claims were in its way", stood)
				}
				holdtest.MustRelease(t, holds[0])
				time.Sleep(time.Minute)
				kit.NothingStands(t, srv)
			})
		})
	}
}

// putAt returns when the entry of a hold was put.
func putAt(srv *etcdfake.Server, h *hold.Hold) time.Time {
	for _, c := range srv.History(h.Key()) {
		if c.Revision == h.Created() {
			return c.At
		}
	}
	return time.Time{}
}

// One entry of a waiting set is deleted by hand: of the queue in which it is first, of the one in which it waits. All
// go with their claims, and the set queues at the back.
func TestSetQueuesAgainIfOneOfItsEntriesIsDeleted(t *testing.T) {
	for _, gone := range []string{"x", "y", "z"} {
		t.Run(gone, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p, other := holdtest.Start(t, srv), holdtest.Start(t, srv)
				ahead := kit.Join(t, srv, kit.Entries("y"))
				done := acquireSetLater(kit.Within(t, time.Minute), p.Set("x", "y", "!z"))
				kit.Queued(t, srv, kit.Entries("y"), 2)
				behind := holdtest.AcquireLater(kit.Within(t, time.Minute), other.Queue("y"))
				kit.Queued(t, srv, kit.Entries("y"), 3)
				entries := kit.Standing(srv, gone)
				srv.Delete(string(entries[min(1, len(entries)-1)].Key))
				time.Sleep(kit.Prompt) // the one behind sees that the set has not held
				ahead.Release()
				released := time.Now()
				next := <-behind // the set is behind it now
				if next.Err != nil {
					t.Fatal(next.Err)
				}
				holdtest.MustRelease(t, next.H)
				holds := grantedSet(t, srv, done)
				if stood := time.Since(putAt(srv, holds[0])); stood > kit.Prompt {
					t.Errorf("held %v after its new put: its own claims were in its way", stood)
				}
				if n := kit.PutsEver(srv, holdtest.EntriesX); n != 2 {
					t.Errorf("the set queued %d times, want twice", n)
				}
				if after := time.Since(released); after > 2*kit.Prompt {
					t.Errorf("held after %v: an entry of the first attempt stood in its way", after)
				}
				holdtest.MustRelease(t, holds[0])
				time.Sleep(time.Minute)
				kit.NothingStands(t, srv)
			})
		})
	}
}

// The set waits behind an entry of y that stays. Those behind it in x have nothing to wait for once it is out of y.
func TestSetThatHasLostAnEntryLeavesItsOtherQueues(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ahead := kit.Join(t, srv, kit.Entries("y"))
		done := acquireSetLater(kit.Within(t, time.Hour), holdtest.Start(t, srv).Set("x", "y"))
		kit.Queued(t, srv, kit.Entries("y"), 2)
		behind := holdtest.AcquireLater(kit.Within(t, time.Hour), holdtest.Start(t, srv).Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		deleted := time.Now()
		srv.Delete(string(kit.Standing(srv, "y")[1].Key)) // of the later lease
		r := holdtest.Granted(t, srv, behind)
		if after := r.At.Sub(deleted); after > queue.RecheckAfter+kit.Prompt {
			t.Errorf("held %v after the set had lost an entry", after)
		}
		holdtest.MustRelease(t, r.H)
		ahead.Release()
		holdtest.MustRelease(t, grantedSet(t, srv, done)[0])
	})
}

// How the entry ahead goes in one queue decides alone, in whichever queue it is and whenever that is.
func TestSetDelaysIfAnEntryAheadWasRevokedInAnyQueue(t *testing.T) {
	for _, name := range []string{"x", "y"} {
		for _, revoke := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					p := holdtest.Start(t, srv)
					ahead := kit.Join(t, srv, kit.Entries(name))
					between := kit.Join(t, srv, kit.Entries(name)) // a waiter that dies in the middle
					done := acquireSetLater(kit.Within(t, time.Minute), p.Set("x", "y"))
					kit.Queued(t, srv, kit.Entries(name), 3)
					between.Revoke()
					time.Sleep(kit.LockDelay / 2)
					if revoke {
						ahead.Revoke()
					} else {
						ahead.Release()
					}
					holds := grantedSet(t, srv, done)
					holdtest.Delayed(t, holdtest.Result{H: holds[0], At: time.Now()}, srv, ahead.Key, revoke)
					holdtest.MustRelease(t, holds[0])
				})
			})
		}
	}
}

// A set waits in one queue after the other. The queue that it does not watch becomes free meanwhile.
func TestSetIsTheFirstOfAQueueThatItDoesNotWatch(t *testing.T) {
	for _, revoke := range []bool{true, false} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			p, other := holdtest.Start(t, srv), holdtest.Start(t, srv)
			x, y := kit.Join(t, srv, holdtest.EntriesX), kit.Join(t, srv, kit.Entries("y"))
			done := acquireSetLater(kit.Within(t, time.Minute), p.Set("x", "y"))
			kit.Queued(t, srv, kit.Entries("y"), 2)
			if revoke {
				y.Revoke()
			} else {
				y.Release()
			}
			behind := holdtest.AcquireLater(kit.Within(t, time.Minute), other.Queue("y"))
			kit.Queued(t, srv, kit.Entries("y"), 2)
			time.Sleep(kit.LockDelay / 2)
			x.Release()
			holds := grantedSet(t, srv, done)
			holdtest.Delayed(t, holdtest.Result{H: holds[0], At: time.Now()}, srv, x.Key, revoke)
			holdtest.StaysQueued(t, behind, "the writer behind the set")
			holdtest.MustRelease(t, holds[0])
			holdtest.MustRelease(t, holdtest.Granted(t, srv, behind).H)
		})
	}
}

// Two Txns of one batch would have one create revision, and neither would see the other. A set is about several queues,
// so it goes alone.
func TestSetIsNeverBatched(t *testing.T) {
	inBatches(t, func(ctx context.Context, t *testing.T, srv *etcdfake.Server, p *holdtest.Process) {
		set, writer := acquireSetLater(ctx, p.Set("y", "x")), holdtest.AcquireLater(ctx, p.Queue("x"))
		company := holdtest.AcquireLater(ctx, p.Queue("z"))
		select {
		case r := <-set:
			if r.err != nil {
				t.Fatal(r.err)
			}
			holdtest.StaysQueued(t, writer, "the writer")
			holdtest.MustRelease(t, r.holds[0])
			holdtest.MustRelease(t, (<-writer).H)
		case r := <-writer:
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			time.Sleep(kit.LockDelay)
			if len(set) > 0 {
				t.Error("the set holds beside the writer")
			}
			holdtest.MustRelease(t, r.H)
			holdtest.MustRelease(t, (<-set).holds[0])
		}
		holdtest.MustRelease(t, holdtest.Granted(t, srv, company).H)
	})
}

func TestCloseEndsSetsThatWaitAndThatHold(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := holdtest.Start(t, srv), holdtest.Start(t, srv)
		ahead := kit.Join(t, srv, kit.Entries("y"))
		waits := acquireSetLater(kit.Within(t, time.Minute), p.Set("x", "y"))
		kit.Queued(t, srv, kit.Entries("y"), 2)
		held := holdtest.MustAcquireSet(t, p.Set("v", "w"), hold.Request{})
		if err := p.Sess.Close(kit.Within(t, time.Minute)); err != nil {
			t.Error(err)
		}
		if r := <-waits; !errors.Is(r.err, holdfast.ErrClosed) {
			t.Errorf("Acquire: %v", r.err)
		}
		for _, h := range held {
			if err := h.Check(); !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("Check: %v", err)
			}
		}
		ahead.Release()
		kit.NothingStands(t, srv)
		began := time.Now()
		holdtest.MustRelease(t, holdtest.MustAcquireSet(t, other.Set("v", "w", "x", "y"), hold.Request{})[0])
		if d := time.Since(began); d > kit.Prompt {
			t.Errorf("the next set waited for %v", d)
		}
	})
}
