package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// giveUpMany makes n attempts, each about another name and given up after d.
func giveUpMany(t *testing.T, p *process, n int, d time.Duration) {
	t.Helper()
	var all sync.WaitGroup
	room := make(chan struct{}, 100)
	for i := range n {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			ctx, cancel := context.WithTimeout(context.Background(), d)
			defer cancel()
			if h, err := p.queue(fmt.Sprint("n", i)).Acquire(ctx, request()); err == nil {
				_ = h.Release(context.Background())
			} else if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// Of the requests some never arrive, some are carried out, and some arrive when
// it is long over. None is answered.
func TestTenThousandAttemptsGivenUpInSilenceLeaveTheSessionKeyAlone(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 500
	}
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		p.plan(func(kind string, n int) etcdfake.Fate {
			switch {
			case kind != "enqueue":
				return etcdfake.Fate{}
			case n%3 == 0:
				return etcdfake.Fate{Request: 2 * time.Minute}
			default:
				return etcdfake.Fate{LoseRequest: n%3 == 1, LoseReply: true, Silent: true}
			}
		})
		giveUpMany(t, p, n, 20*time.Millisecond)
		time.Sleep(10 * time.Minute)
		if kvs := srv.Keys(""); len(kvs) != 1 || string(kvs[0].Key) != p.sessionKey() {
			t.Errorf("%d keys stand, want the session key alone", len(kvs))
		}
		if put := putsEver(srv, "holdfast/lock/"); put < n/10 || put > n-n/10 {
			t.Errorf("%d puts of %d attempts were carried out: this tests only one kind", put, n)
		}
		if n := p.queue("x").used(); n != 0 {
			t.Errorf("%d keys are in use", n)
		}
	})
}

func TestAttemptsWithADeadlineBelowTheRoundTripLeaveNothingAndNoPutOfTheSessionKey(t *testing.T) {
	const n = 300
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		giveUpMany(t, p, n, oneWay+time.Millisecond)
		time.Sleep(4 * oneWay)
		nothingStands(t, srv)
		if put := putsEver(srv, "holdfast/lock/"); put != n {
			t.Errorf("%d entries were put, want %d", put, n)
		}
		time.Sleep(time.Minute)
		if n := p.gateMoves(srv); n != 0 {
			t.Errorf("the session key was put again %d times although all was answered", n)
		}
	})
}

// The sweeper refuses the attempts of others each time it puts the session key.
func TestOthersGetInWhileAThirdOfAllRequestsIsNotAnswered(t *testing.T) {
	for _, loss := range []etcdfake.Fate{{LoseRequest: true, Silent: true}, {LoseReply: true, Silent: true}, {LoseReply: true}} {
		t.Run(fmt.Sprintf("%+v", loss), func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				p.link.Delay(100 * time.Millisecond)
				var mu sync.Mutex // protects r
				r := rand.New(rand.NewPCG(1, 2))
				p.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
					mu.Lock()
					defer mu.Unlock()
					if kind := kindOf(c); kind == "event" || c.Method == "LeaseKeepAlive" || r.IntN(3) > 0 {
						return etcdfake.Fate{}
					}
					return loss
				})
				stop := make(chan struct{})
				var busy sync.WaitGroup
				for i := range 8 {
					busy.Go(func() {
						for n := 0; ; n++ {
							select {
							case <-stop:
								return
							default:
							}
							ctx, cancel := context.WithTimeout(context.Background(), 150*time.Millisecond)
							if h, err := p.queue(fmt.Sprintf("busy%d-%d", i, n)).Acquire(ctx, request()); err == nil {
								_ = h.Release(context.Background())
							}
							cancel()
						}
					})
				}
				const most = 20 * time.Second
				for i := range 15 {
					began := time.Now()
					h, err := p.queue(fmt.Sprint("other", i)).Acquire(within(t, time.Minute), request())
					if took := time.Since(began); err != nil || took > most {
						t.Fatalf("attempt %d: after %v: %v", i, took, err)
					}
					go func() { _ = h.Release(context.Background()) }() // ends soon after the test heals the link
				}
				close(stop)
				busy.Wait()
				p.heal()
				time.Sleep(time.Minute)
				nothingStands(t, srv)
				t.Logf("the session key was put again %d times", p.gateMoves(srv))
			})
		})
	}
}

// unansweredPut has an entry of a given-up attempt stand: it was carried out and
// never answered, nor are reads until release is called.
func unansweredPut(t *testing.T, p *process, srv *etcdfake.Server) (release func()) {
	t.Helper()
	p.plan(func(kind string, n int) etcdfake.Fate {
		if kind == "enqueue" || kind == "gate" || kind == "read" {
			return etcdfake.Fate{LoseReply: true, LoseRequest: kind != "enqueue" || n > 1, Silent: true}
		}
		return etcdfake.Fate{}
	})
	before := len(srv.Keys(entriesX))
	if _, err := p.queue("x").Acquire(within(t, 50*time.Millisecond), request()); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if len(srv.Keys(entriesX)) != before+1 {
		t.Fatalf("entries %v: this tests nothing", srv.Keys(entriesX))
	}
	return func() { p.plan(nil) }
}

func TestSweeperRemovesAnEntryByTheRuleForThoseThatNeverHeld(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(ahead *peer)
		delay bool
	}{
		"the entry ahead stands":       {nil, false},
		"the entry ahead was released": {(*peer).release, false},
		"the entry ahead was revoked":  {(*peer).revoke, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				p, behind := start(t, srv), start(t, srv)
				ahead := join(t, srv, entriesX)
				release := unansweredPut(t, p, srv)
				entry := string(srv.Keys(entriesX)[1].Key)
				last := acquireLater(within(t, time.Hour), behind.queue("x"))
				queued(t, srv, entriesX, 3)
				left := time.Now()
				if c.leave != nil {
					c.leave(ahead)
				}
				release()
				time.Sleep(time.Minute)
				if c.leave == nil {
					ahead.release()
				}
				r := granted(t, srv, last)
				if took := deletedAt(t, srv, entry).Sub(left); took > 20*time.Second || c.delay && took < lockDelay {
					t.Errorf("removed after %v; lock delay %v", took, c.delay)
				}
				if took := r.at.Sub(deletedAt(t, srv, entry)); c.leave != nil && took > prompt {
					t.Errorf("the one behind was granted %v after the removal", took)
				}
			})
		})
	}
}

// The session key was put again while the attempt was under way: no copy of its
// put can come any more, but the one that was carried out stands.
func TestEntryOfAnUnansweredPutIsRemovedAlthoughTheGateHasMovedSince(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		p.planAll("enqueue", etcdfake.Fate{LoseReply: true, Silent: true})
		done := acquireLater(within(t, 50*time.Millisecond), p.queue("x"))
		time.Sleep(2 * oneWay)
		if _, err := lease.Open(p.sess.Ref()).PutSessionKey(t.Context(), lease.Open(p.sess.Ref()).Lease()); err != nil {
			t.Fatal(err)
		}
		if r := <-done; r.err == nil || len(srv.Keys(entriesX)) != 1 {
			t.Fatalf("%v, entries %v: this tests nothing", r.err, srv.Keys(entriesX))
		}
		time.Sleep(prompt)
		nothingStands(t, srv)
		if n := p.gateMoves(srv); n != 1 {
			t.Errorf("the session key was put again %d times, want once, by the test", n)
		}
	})
}

func TestFullStoreKeepsTheSweeperFromNoDeletion(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		release := unansweredPut(t, p, srv)
		p.kv.refuse(func(ops []clientv3.Op) error {
			for _, op := range ops {
				if op.IsPut() {
					return rpctypes.ErrNoSpace
				}
			}
			return nil
		})
		release()
		time.Sleep(30 * time.Second)
		nothingStands(t, srv)
		if n := p.gateMoves(srv); n != 0 {
			t.Fatalf("the session key was put again %d times", n)
		}
		p.kv.refuse(nil)
		time.Sleep(time.Minute)
		if n := p.gateMoves(srv); n != 1 {
			t.Errorf("the session key was put again %d times once there was room, want once", n)
		}
	})
}

// A role that was taken away covers some names, and others not.
func TestEntryThatEtcdRefusesToRemoveKeepsNoOtherStanding(t *testing.T) {
	for _, reads := range []bool{false, true} {
		t.Run(fmt.Sprint("reads are refused: ", reads), func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				p.plan(func(kind string, n int) etcdfake.Fate {
					if kind == "enqueue" {
						return etcdfake.Fate{LoseReply: true, Silent: true}
					}
					return etcdfake.Fate{}
				})
				p.kv.refuse(func(ops []clientv3.Op) error {
					for _, op := range ops {
						refused := op.IsDelete() || reads && op.IsGet()
						if refused && strings.HasPrefix(string(op.KeyBytes()), "holdfast/lock/n0/") && !slices.ContainsFunc(ops, clientv3.Op.IsPut) {
							return rpctypes.ErrPermissionDenied
						}
					}
					return nil
				})
				giveUpMany(t, p, 20, 20*time.Millisecond)
				time.Sleep(time.Minute)
				if kvs := srv.Keys("holdfast/lock/"); len(kvs) != 1 {
					t.Errorf("%d entries stand, want the one whose removal is refused", len(kvs))
				}
			})
		})
	}
}

// An unanswered put of the session key may have refused others all the same.
func TestUnansweredPutOfTheSessionKeyWaitsForThoseThatItMayHaveRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		q := p.queue("x")
		s := &q.shared.sweeper
		inFlight := q.shared.keys.newEntry(q, lease.Open(p.sess.Ref()).Lease())
		suspects := []*entry{{q: q, lease: inFlight.lease, unansweredAt: inFlight.lease.Gate()}}
		p.planOne("gate", lostReply)
		if err := s.moveGate(t.Context(), inFlight.lease, suspects); err == nil {
			t.Fatal("the put was answered: this tests nothing")
		}
		if err := s.moveGate(t.Context(), inFlight.lease, suspects); err != errPutsInFlight {
			t.Errorf("with an attempt in flight that the first put may have refused: %v", err)
		}
		if n := p.counts()["gate"]; n != 1 {
			t.Errorf("%d puts of the session key were sent, want 1 until the other attempt has its place", n)
		}
		inFlight.setCreated(1)
		if err := s.moveGate(t.Context(), inFlight.lease, suspects); err != nil {
			t.Error(err)
		}
		inFlight.finish()
	})
}
