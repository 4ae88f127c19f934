package shard_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/shard"
)

func TestShardsAreSharedEvenlyAsMembersComeAndGo(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 16)
		a := f.start("a", 0)
		time.Sleep(settled)
		f.even("alone", "a")
		b, c := f.start("b", time.Second), f.start("c", 0)
		time.Sleep(settled)
		f.even("three", "a", "b", "c")
		a.stop()
		if !errors.Is(a.err, context.Canceled) {
			t.Errorf("Run: %v", a.err)
		}
		time.Sleep(settled)
		f.even("one has left", "b", "c")
		d := f.start("d", 0)
		b.Link.Cut()
		time.Sleep(kit.TTL + kit.LockDelay + settled)
		f.even("one is cut off", "c", "d")
		b.Heal()
		time.Sleep(kit.TTL + settled)
		f.even("it is back", "b", "c", "d")
		srv.Revoke(c.Sess.Lease())
		time.Sleep(kit.TTL + kit.LockDelay + settled)
		f.even("a lease was revoked", "b", "c", "d")
		for _, r := range []*running{b, c, d} {
			r.stop()
		}
		f.empty()
	})
}

// The one that leaves says so first; others queue for its shards while its functions still run.
func TestMemberThatLeavesDrainsFirst(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 4)
		const longer = 3 * time.Second
		a := f.start("a", longer)
		time.Sleep(settled)
		f.start("b", 0)
		time.Sleep(settled + longer)
		f.even("before", "a", "b")
		a.leave()
		time.Sleep(longer / 2)
		f.even("draining", "a", "b")
		if kvs := srv.Keys(entries); len(kvs) != 1+4+2 {
			t.Errorf("%d keys: no member queues for the shards", len(kvs))
		}
		<-a.done
		time.Sleep(time.Second / 10)
		f.even("afterwards", "b")
		a.stop()
	})
}

func TestShardMovesWhenItsFunctionHasReturned(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 8)
		const longer = 10 * time.Second
		f.start("a", longer)
		time.Sleep(settled)
		f.start("b", 0)
		time.Sleep(longer - settled/2)
		f.even("the functions run on", "a")
		time.Sleep(settled)
		f.even("they have returned", "a", "b")
	})
}

func TestFunctionThatReturnsIsCalledAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 2)
		broken := errors.New("broken")
		var mu sync.Mutex
		calls, told := make(map[int]int), make(map[int]int)
		r := f.startWith(kit.Start(t, srv), "a", func(ctx context.Context, s *shard.Shard) error {
			mu.Lock()
			calls[s.Index()]++
			mu.Unlock()
			if s.Index() == 1 {
				return broken
			}
			return nil
		}, func(o *shard.Options) {
			o.OnError = func(index int, err error) {
				mu.Lock()
				defer mu.Unlock()
				told[index]++
				if !errors.Is(err, broken) {
					t.Errorf("shard %d: %v", index, err)
				}
			}
		})
		time.Sleep(time.Minute)
		r.stop()
		// The pauses are up to 1 s.
		if calls[0] < 60 || calls[0] > 300 || calls[1] != told[1] || told[0] != 0 {
			t.Errorf("called %v, told %v", calls, told)
		}
		f.empty()
	})
}

func TestPanicEndsRunAfterAllFunctionsHaveReturned(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 4)
		work := f.work("a", 2*time.Second)
		r := f.startWith(kit.Start(t, srv), "a", func(ctx context.Context, s *shard.Shard) error {
			if s.Index() == 3 {
				time.Sleep(time.Second)
				panic("out of order")
			}
			return work(ctx, s)
		})
		<-r.done
		if r.err == nil || r.err.Error() != "panic: out of order" {
			t.Errorf("%v", r.err)
		}
		if len(f.begun) != 3 || len(f.owner) != 0 {
			t.Errorf("begun %v, still running %v", f.begun, f.owner)
		}
		f.empty()
	})
}

func TestFunctionThatDoesNotReturnLosesItsShard(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 2)
		const drain = 10 * time.Second
		release := make(chan struct{})
		var mu sync.Mutex
		var told []error
		stuck := make(map[*shard.Shard]bool)
		a := f.startWith(kit.Start(t, srv), "a", func(ctx context.Context, s *shard.Shard) error {
			mu.Lock()
			stuck[s] = true
			mu.Unlock()
			<-release
			return nil
		}, func(o *shard.Options) {
			o.DrainTimeout = drain
			o.OnError = func(_ int, err error) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, err)
			}
		})
		time.Sleep(settled)
		f.start("b", 0)
		time.Sleep(settled)
		if n := f.owned(); n != 0 {
			t.Errorf("before DrainTimeout: %d are owned", n)
		}
		time.Sleep(drain)
		synctest.Wait()
		mu.Lock()
		if f.owned() != 1 || len(told) != 1 || !errors.Is(told[0], shard.ErrNotDrained) ||
			!errors.Is(told[0], holdfast.ErrLost) {
			t.Errorf("after DrainTimeout: %d are owned, told %v", f.owned(), told)
		}
		mu.Unlock()
		a.stop()
		if !errors.Is(a.err, context.Canceled) || !errors.Is(a.err, shard.ErrNotDrained) {
			t.Errorf("Run: %v", a.err)
		}
		time.Sleep(settled)
		f.even("afterwards", "b")
		for s := range stuck {
			var lost *holdfast.LostError
			if !errors.As(s.Check(), &lost) || lost.Cause != holdfast.CauseNotDrained || lost.Kind != holdfast.KindShard {
				t.Errorf("%v", s.Check())
			}
		}
		close(release)
	})
}

// The shard comes back to a member whose function, which has lost it, still runs.
func TestFunctionsOfAShardNeverOverlapInAProcess(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 2)
		release := make(chan struct{})
		var mu sync.Mutex
		calls := make(map[int]int)
		f.startWith(kit.Start(t, srv), "a", func(ctx context.Context, s *shard.Shard) error {
			mu.Lock()
			calls[s.Index()]++
			first := calls[s.Index()] == 1
			mu.Unlock()
			<-ctx.Done()
			if first {
				<-release
			}
			return nil
		}, func(o *shard.Options) { o.DrainTimeout = time.Second })
		time.Sleep(settled)
		for range 2 {
			b := f.start("b", 0)
			time.Sleep(settled)
			b.stop()
			time.Sleep(settled)
		}
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return calls[0] + calls[1]
		}
		if n := count(); n != 2 {
			t.Errorf("%d calls while a function runs", n)
		}
		close(release)
		time.Sleep(settled)
		if n := count(); n != 3 {
			t.Errorf("%d calls afterwards", n)
		}
	})
}

func TestFunctionSeesASuspension(t *testing.T) {
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprintf("CancelOnSuspended %v", strict), func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				f := newFleet(t, srv, 1)
				var calls []*shard.Shard
				var causes []error
				r := f.startWith(kit.Start(t, srv), "a", func(ctx context.Context, s *shard.Shard) error {
					calls = append(calls, s)
					<-ctx.Done()
					causes = append(causes, context.Cause(ctx))
					return ctx.Err()
				}, func(o *shard.Options) {
					o.CancelOnSuspended = strict
					o.OnError = func(_ int, err error) { t.Error(err) }
				})
				time.Sleep(settled)
				r.Link.Cut()
				for r.Sess.State() != holdfast.Suspended {
					time.Sleep(100 * time.Millisecond)
				}
				r.Heal()
				time.Sleep(kit.TTL)
				r.stop()
				if strict && (len(calls) != 2 || calls[0] != calls[1] || !errors.Is(causes[0], holdfast.ErrSuspended)) ||
					!strict && (len(calls) != 1 || !errors.Is(causes[0], context.Canceled)) {
					t.Errorf("%d calls, causes %v", len(calls), causes)
				}
			})
		})
	}
}

func TestFunctionHasItsShardForFencing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 3)
		r := f.startWith(kit.Start(t, srv), "a", func(ctx context.Context, s *shard.Shard) error {
			h, ok := fencing.FromContext(ctx)
			if !ok || h != fencing.Source(s) || s.Name() != fmt.Sprintf("orders/%d", s.Index()) || s.Check() != nil ||
				!strings.HasPrefix(s.Key(), entries) || s.Token() == 0 || s.AcquiredRevision() < s.Token().Revision() {
				t.Errorf("shard %d: %v, %s", s.Index(), h, s.Name())
			}
			<-ctx.Done()
			if !errors.Is(s.Check(), nil) {
				t.Errorf("while the function returns: %v", s.Check())
			}
			return nil
		})
		time.Sleep(settled)
		r.stop()
	})
}

func TestMemberWhoseKeyWasDeletedKeepsItsShards(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 4)
		f.start("a", 0)
		time.Sleep(settled)
		srv.Delete(string(srv.Keys(members)[0].Key))
		time.Sleep(settled)
		f.even("afterwards", "a")
		if !maps.Equal(f.begun, map[int]int{0: 1, 1: 1, 2: 1, 3: 1}) || len(srv.Keys(members)) != 1 {
			t.Errorf("begun %v, members %v", f.begun, srv.Keys(members))
		}
	})
}

// The lease is revoked, and the watches of its session are silent: only a poll tells it, within the lock delay. Others
// see at once that it has gone.
func TestRevokedOwnerIsToldBeforeTheNextOneHolds(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 8)
		a := f.start("a", 0)
		f.start("b", 0)
		time.Sleep(settled)
		f.even("before", "a", "b")
		a.PlanAll("event", etcdfake.Fate{Reply: time.Hour})
		srv.Revoke(a.Sess.Lease())
		time.Sleep(kit.LockDelay + settled) // begin fails if a function of a still runs
		if f.owned() != f.n {
			t.Errorf("%d of %d shards are owned", f.owned(), f.n)
		}
	})
}

func TestRunEndsWithItsSession(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 4)
		r := f.start("a", 0)
		time.Sleep(settled)
		if err := r.Sess.Close(kit.Within(t, time.Minute)); err != nil {
			t.Error(err)
		}
		<-r.done
		if !errors.Is(r.err, holdfast.ErrClosed) || len(f.owner) != 0 {
			t.Errorf("%v, owner %v", r.err, f.owner)
		}
		f.empty()
	})
}

func TestBadInputIsRefusedBeforeAnythingIsSent(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		anonymous := kit.Start(t, srv, func(o *session.Options) { o.Anonymous = true })
		fn := func(context.Context, *shard.Shard) error { return nil }
		long := strings.Repeat("x", 5000)
		run := func(sess *session.Session, name string, n int, o shard.Options) error {
			return shard.New(sess, name, n).With(o).Run(t.Context(), fn)
		}
		var noContext context.Context
		before := p.Link.Count()
		for argument, err := range map[string]error{
			"sess":                 run(nil, "orders", 1, shard.Options{}),
			"n":                    run(p.Sess, "orders", shard.MaxCount+1, shard.Options{}),
			"ctx":                  shard.New(p.Sess, "orders", 1).Run(noContext, fn),
			"fn":                   shard.New(p.Sess, "orders", 1).Run(t.Context(), nil),
			"Options.DrainTimeout": run(p.Sess, "orders", 1, shard.Options{DrainTimeout: -1}),
			"Options.Member":       run(p.Sess, "orders", 1, shard.Options{Member: long}),
			"Options.Value":        run(p.Sess, "orders", 1, shard.Options{Value: long}),
		} {
			var bad *holdfast.ArgumentError
			if !errors.As(err, &bad) || bad.Argument != argument {
				t.Errorf("%s: %v", argument, err)
			}
		}
		var bad *holdfast.ArgumentError
		err := run(anonymous.Sess, "orders", 1, shard.Options{})
		if !errors.As(err, &bad) || bad.Argument != "Options.Member" {
			t.Errorf("no name: %v", err)
		}
		for _, name := range []string{"", "a//b", long[:501]} {
			var bad *holdfast.NameError
			if err := run(p.Sess, name, 1, shard.Options{}); !errors.As(err, &bad) {
				t.Errorf("%.10q: %v", name, err)
			}
		}
		synctest.Wait()
		if after := p.Link.Count(); !maps.Equal(before, after) {
			t.Errorf("sent %v, before %v", after, before)
		}
	})
}
