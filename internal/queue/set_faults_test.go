package queue

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/internal/watching"
)

// set is a Set of locks; "!x" reads x.
func (p *process) set(members ...string) (s Set) {
	for _, m := range members {
		if name, reads := strings.CutPrefix(m, "!"); reads {
			s = append(s, p.readers(name))
		} else {
			s = append(s, p.queue(name))
		}
	}
	return s
}

func mustAcquireSet(t *testing.T, s Set, r Request) []*Hold {
	t.Helper()
	holds, err := s.Acquire(kit.Within(t, time.Minute), r)
	if err != nil {
		t.Fatal(err)
	}
	return holds
}

// grantedSet receives a set, of whose entries each must be the first writer's or have only readers ahead.
func grantedSet(t *testing.T, srv *etcdfake.Server, done <-chan setResult) []*Hold {
	t.Helper()
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	for _, h := range r.holds {
		kvs := srv.Keys(h.Queue().at.Entries)
		if h.Queue().reader {
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
			"reply lost": lostReply, "request lost": lostRequest, "silent": silence,
			"no reply": {LoseReply: true, Silent: true}, "late": {Request: 3 * time.Second},
		} {
			for _, ahead := range []bool{true, false} {
				t.Run(kind+" "+name, func(t *testing.T) {
					etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
						p := start(t, srv)
						var peer *kit.Peer
						if ahead {
							peer = kit.Join(t, srv, kit.Entries("y"))
						}
						p.PlanOne(kind, fate)
						done := acquireSetLater(kit.Within(t, time.Minute), p.set("x", "y", "!z"))
						time.Sleep(5 * time.Second)
						if ahead {
							peer.Release()
						}
						holds := grantedSet(t, srv, done)
						if rev := holds[0].entry.rev; holds[1].entry.rev != rev || holds[2].entry.rev != rev {
							t.Error("the entries of the set have several create revisions")
						}
						_ = holds[1].Release(kit.Within(t, time.Minute))
						time.Sleep(time.Minute)
						kit.NothingStands(t, srv)
						if n := p.queue("x").used(); n != 0 {
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
	atEveryMoment(t, 0, 20*kit.OneWay, func(t *testing.T, srv *etcdfake.Server, offset time.Duration) {
		p := start(t, srv)
		x, y := kit.Join(t, srv, entriesX), kit.Join(t, srv, kit.Entries("y"))
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		done := acquireSetLater(ctx, p.set("x", "y", "z"))
		time.AfterFunc(6*kit.OneWay, x.Release)
		time.AfterFunc(9*kit.OneWay, y.Release)
		time.Sleep(offset)
		giveUp()
		if r := <-done; r.err == nil {
			granted++
			mustRelease(t, r.holds[0])
		} else if canceled++; !errors.Is(r.err, context.Canceled) {
			t.Errorf("Acquire: %v", r.err)
		}
		time.Sleep(20 * kit.OneWay)
		began := time.Now()
		h := mustAcquireSet(t, start(t, srv).set("z", "y", "x"), Request{})
		if d := time.Since(began); d > kit.LockDelay/2 {
			t.Errorf("a set that comes afterwards waits for %v", d)
		}
		mustRelease(t, h[0])
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
				p := start(t, srv)
				p.PlanOne("enqueue", lostReply)
				done := acquireSetLater(kit.Within(t, time.Minute), p.set("x", "y"))
				time.Sleep(kit.OneWay + time.Millisecond)
				standing := kit.Standing(srv, gone)
				if len(standing) != 1 {
					t.Fatal("the set was not put: this tests nothing")
				}
				srv.Delete(string(standing[0].Key))
				holds := grantedSet(t, srv, done)
				if n := kit.PutsEver(srv, entriesX); n != 2 || holds[0].entry.rev == standing[0].CreateRevision {
					t.Errorf("%d entries were put, held by the one of revision %d", n, holds[0].entry.rev)
				}
				if stood := holds[0].since.Sub(putAt(srv, holds[0])); stood < kit.LockDelay {
					t.Errorf("held %v after its new put, want the lock delay", stood)
				}
				mustRelease(t, holds[0])
				time.Sleep(time.Minute)
				kit.NothingStands(t, srv)
			})
		})
	}
}

// putAt returns when the entry of a hold was put.
func putAt(srv *etcdfake.Server, h *Hold) time.Time {
	for _, c := range srv.History(h.Key()) {
		if c.Revision == h.entry.rev {
			return c.At
		}
	}
	return time.Time{}
}

// One entry of a waiting set is deleted by hand: of the queue in which it is first, of the one in which it waits. All
// go, the set queues at the back, and holds not before the lock delay.
func TestSetQueuesAgainIfOneOfItsEntriesIsDeleted(t *testing.T) {
	for _, gone := range []string{"x", "y", "z"} {
		t.Run(gone, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p, other := start(t, srv), start(t, srv)
				ahead := kit.Join(t, srv, kit.Entries("y"))
				done := acquireSetLater(kit.Within(t, time.Minute), p.set("x", "y", "!z"))
				kit.Queued(t, srv, kit.Entries("y"), 2)
				behind := acquireLater(kit.Within(t, time.Minute), other.queue("y"))
				kit.Queued(t, srv, kit.Entries("y"), 3)
				entries := kit.Standing(srv, gone)
				srv.Delete(string(entries[min(1, len(entries)-1)].Key))
				ahead.Release()
				released := time.Now()
				next := <-behind // the set is behind it now
				if next.err != nil {
					t.Fatal(next.err)
				}
				mustRelease(t, next.h)
				holds := grantedSet(t, srv, done)
				if stood := holds[0].since.Sub(putAt(srv, holds[0])); stood < kit.LockDelay {
					t.Errorf("held %v after its new put, want the lock delay", stood)
				}
				if n := kit.PutsEver(srv, entriesX); n != 2 {
					t.Errorf("the set queued %d times, want twice", n)
				}
				if after := holds[0].since.Sub(released); after > kit.LockDelay+2*kit.Prompt {
					t.Errorf("held after %v: an entry of the first attempt stood in its way", after)
				}
				mustRelease(t, holds[0])
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
		done := acquireSetLater(kit.Within(t, time.Hour), start(t, srv).set("x", "y"))
		kit.Queued(t, srv, kit.Entries("y"), 2)
		behind := acquireLater(kit.Within(t, time.Hour), start(t, srv).queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		deleted := time.Now()
		srv.Delete(string(kit.Standing(srv, "y")[1].Key)) // of the later lease
		r := granted(t, srv, behind)
		if after := r.at.Sub(deleted); after > recheckAfter+watching.ProgressEvery+kit.Prompt {
			t.Errorf("held %v after the set had lost an entry", after)
		}
		mustRelease(t, r.h)
		ahead.Release()
		mustRelease(t, grantedSet(t, srv, done)[0])
	})
}

// How the entry ahead goes in one queue decides alone, in whichever queue it is and whenever that is.
func TestSetDelaysIfAnEntryAheadWasRevokedInAnyQueue(t *testing.T) {
	for _, name := range []string{"x", "y"} {
		for _, revoke := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					p := start(t, srv)
					ahead := kit.Join(t, srv, kit.Entries(name))
					between := kit.Join(t, srv, kit.Entries(name)) // a waiter that dies in the middle
					done := acquireSetLater(kit.Within(t, time.Minute), p.set("x", "y"))
					kit.Queued(t, srv, kit.Entries(name), 3)
					between.Revoke()
					time.Sleep(kit.LockDelay / 2)
					if revoke {
						ahead.Revoke()
					} else {
						ahead.Release()
					}
					holds := grantedSet(t, srv, done)
					delayed(t, result{h: holds[0], at: holds[0].since}, srv, ahead.Key, revoke)
					mustRelease(t, holds[0])
				})
			})
		}
	}
}

// A set waits in one queue after the other. The queue that it does not watch becomes free meanwhile.
func TestSetIsTheFirstOfAQueueThatItDoesNotWatch(t *testing.T) {
	for _, revoke := range []bool{true, false} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			p, other := start(t, srv), start(t, srv)
			x, y := kit.Join(t, srv, entriesX), kit.Join(t, srv, kit.Entries("y"))
			done := acquireSetLater(kit.Within(t, time.Minute), p.set("x", "y"))
			kit.Queued(t, srv, kit.Entries("y"), 2)
			if revoke {
				y.Revoke()
			} else {
				y.Release()
			}
			behind := acquireLater(kit.Within(t, time.Minute), other.queue("y"))
			kit.Queued(t, srv, kit.Entries("y"), 2)
			time.Sleep(5 * time.Second)
			x.Release()
			holds := grantedSet(t, srv, done)
			delayed(t, result{h: holds[0], at: holds[0].since}, srv, x.Key, revoke)
			staysQueued(t, behind, "the writer behind the set")
			mustRelease(t, holds[0])
			mustRelease(t, granted(t, srv, behind).h)
		})
	}
}

// Two Txns of one batch would have one create revision, and neither would see the other. A set is about several queues,
// so it goes alone.
func TestSetIsNeverBatched(t *testing.T) {
	inBatches(t, func(ctx context.Context, t *testing.T, srv *etcdfake.Server, p *process) {
		set, writer := acquireSetLater(ctx, p.set("y", "x")), acquireLater(ctx, p.queue("x"))
		company := acquireLater(ctx, p.queue("z"))
		select {
		case r := <-set:
			if r.err != nil {
				t.Fatal(r.err)
			}
			staysQueued(t, writer, "the writer")
			mustRelease(t, r.holds[0])
			mustRelease(t, (<-writer).h)
		case r := <-writer:
			if r.err != nil {
				t.Fatal(r.err)
			}
			time.Sleep(kit.LockDelay)
			if len(set) > 0 {
				t.Error("the set holds beside the writer")
			}
			mustRelease(t, r.h)
			mustRelease(t, (<-set).holds[0])
		}
		mustRelease(t, granted(t, srv, company).h)
	})
}

func TestCloseEndsSetsThatWaitAndThatHold(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := start(t, srv), start(t, srv)
		ahead := kit.Join(t, srv, kit.Entries("y"))
		waits := acquireSetLater(kit.Within(t, time.Minute), p.set("x", "y"))
		kit.Queued(t, srv, kit.Entries("y"), 2)
		held := mustAcquireSet(t, p.set("v", "w"), Request{})
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
		mustRelease(t, mustAcquireSet(t, other.set("v", "w", "x", "y"), Request{})[0])
		if d := time.Since(began); d > kit.Prompt {
			t.Errorf("the next set waited for %v", d)
		}
	})
}
