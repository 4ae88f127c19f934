package shard_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/shard"
)

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
				if want := []error{shard.ErrReturned, broken}[index]; !errors.Is(err, want) {
					t.Errorf("shard %d: %v", index, err)
				}
			}
		})
		time.Sleep(time.Minute)
		r.stop()
		// The pauses are up to 1 s after an error, and grow up to a minute after nil.
		if calls[0] < 5 || calls[0] > 40 || calls[1] < 60 || calls[1] > 300 || !maps.Equal(calls, told) {
			t.Errorf("called %v, told %v", calls, told)
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
				if strict && (len(calls) != 2 || calls[0] == calls[1] || !errors.Is(causes[0], holdfast.ErrSuspended)) ||
					!strict && (len(calls) != 1 || !errors.Is(causes[0], context.Canceled)) {
					t.Errorf("%d calls, causes %v", len(calls), causes)
				}
			})
		})
	}
}

// Its shard is not to end by the suspension, so the function has ended it.
func TestFunctionThatReturnsInASuspensionIsTold(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 1)
		suspended := make(chan struct{})
		var told atomic.Int64
		r := f.startWith(kit.Start(t, srv), "a", func(ctx context.Context, s *shard.Shard) error {
			select {
			case <-suspended:
			case <-ctx.Done():
			}
			return nil
		}, func(o *shard.Options) { o.OnError = func(int, error) { told.Add(1) } })
		time.Sleep(settled)
		r.Link.Cut()
		for r.Sess.State() != holdfast.Suspended {
			time.Sleep(100 * time.Millisecond)
		}
		close(suspended)
		time.Sleep(kit.CloseTimeout + time.Second) // the release has that long
		if told.Load() == 0 {
			t.Error("not told")
		}
		r.Heal()
	})
}

// As Options.DrainTimeout says.
func TestFunctionHasThirtySecondsToReturn(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 1)
		r := f.start("a", time.Hour)
		time.Sleep(settled)
		began := time.Now()
		r.stop()
		if took := time.Since(began).Round(time.Second); took != 30*time.Second || !errors.Is(r.err, shard.ErrNotDrained) {
			t.Errorf("after %v: %v", took, r.err)
		}
		time.Sleep(time.Hour) // until it has returned
	})
}

// It has lost its shards before it hears that they are assigned to another one: that is a consequence.
func TestFunctionOfAStoppedProcessIsToldThatItsShardIsLost(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 16)
		var mu sync.Mutex
		var causes []error
		a := f.startWith(kit.Start(t, srv), "a", func(ctx context.Context, _ *shard.Shard) error {
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			causes = append(causes, context.Cause(ctx))
			return nil
		})
		f.startWith(kit.Start(t, srv), "b", f.work("b", 0))
		time.Sleep(2 * settled)
		moved := len(causes)
		a.Stop()
		time.Sleep(kit.TTL + kit.LockDelay + settled)
		a.Resume()
		time.Sleep(2 * settled)
		mu.Lock()
		defer mu.Unlock()
		for _, cause := range causes[moved:] {
			if !errors.Is(cause, holdfast.ErrLost) {
				t.Errorf("%v", cause)
			}
		}
		if n := len(causes) - moved; n != 8 {
			t.Errorf("%d functions have ended", n)
		}
	})
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

// A request to let go ends the function. As the shard is still assigned to the member, it owns it anew, with another
// token.
func TestKickedShardIsOwnedAnewByItsMember(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 4)
		f.start("a", time.Second)
		f.start("b", 0)
		time.Sleep(settled)
		f.even("before", "a", "b")
		owners, calls := f.owners(), f.calls()
		adm := admin.New(srv.Client(t), admin.Options{})
		for index, token := range maps.Clone(f.last) {
			err := adm.Kick(t.Context(), holdfast.KindShard, fmt.Sprint("orders/", index), token, "it hangs")
			if err != nil {
				t.Error(err)
			}
		}
		time.Sleep(2 * settled)
		if now := f.owners(); !maps.Equal(now, owners) || f.calls() != calls+f.n {
			t.Errorf("%d calls more for %d shards; owners %v, before %v", f.calls()-calls, f.n, now, owners)
		}
	})
}

// A refusal of one shard costs neither the others nor Run.
func TestRefusedShardIsQueuedForAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 4)
		p := kit.Start(t, srv)
		p.KV.Refuse(func(ops []clientv3.Op) error {
			for _, op := range ops {
				if op.IsPut() && strings.HasPrefix(string(op.KeyBytes()), entries+"0/@/") {
					return rpctypes.ErrPermissionDenied
				}
			}
			return nil
		})
		var mu sync.Mutex
		told := 0
		r := f.startWith(p, "a", f.work("a", 0), func(o *shard.Options) {
			o.OnError = func(index int, err error) {
				mu.Lock()
				defer mu.Unlock()
				told++
				if index != 0 || !errors.Is(err, rpctypes.ErrPermissionDenied) {
					t.Errorf("shard %d: %v", index, err)
				}
			}
		})
		time.Sleep(time.Minute)
		mu.Lock()
		if n := f.owned(); n != 3 || told < 30 || told > 300 {
			t.Errorf("%d shards are owned, and told %d times", n, told)
		}
		mu.Unlock()
		p.KV.Refuse(nil)
		time.Sleep(settled)
		f.even("no more refused", "a")
		r.stop()
	})
}

// Its functions have returned, so no entry stands, and etcd refuses the next ones: their number is not there.
func TestNumberThatWasDeletedIsPutAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 1)
		var calls atomic.Int64
		f.startWith(kit.Start(t, srv), "a", func(context.Context, *shard.Shard) error { calls.Add(1); return nil })
		time.Sleep(settled)
		srv.Delete(count)
		before := calls.Load()
		time.Sleep(5 * time.Minute)
		if n := number(srv); n != "1" || calls.Load() == before {
			t.Errorf("the number is %q, and %d functions were called since", n, calls.Load()-before)
		}
	})
}

// After a steady hold it is called again as after the first one.
func TestPausesBeginAnewAfterASteadyHold(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		const restless = 10
		f := newFleet(t, srv, 2)
		var mu sync.Mutex
		calls, ended := make(map[int]int), make(map[int]time.Time)
		pause := make(map[int]time.Duration) // before the call after the steady one
		f.startWith(kit.Start(t, srv), "a", func(ctx context.Context, s *shard.Shard) error {
			mu.Lock()
			index := s.Index()
			calls[index]++
			n := calls[index]
			if n == restless+2 {
				pause[index] = time.Since(ended[index])
			}
			mu.Unlock()
			switch {
			case n == restless+1:
				time.Sleep(time.Minute)
			case n > restless+1:
				<-ctx.Done()
			}
			mu.Lock()
			ended[index] = time.Now()
			mu.Unlock()
			return []error{nil, errors.New("broken")}[index]
		}, func(o *shard.Options) { o.Retry.Rand = func() float64 { return 0.999 } })
		time.Sleep(2 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		for index := range 2 {
			if p, ok := pause[index]; !ok || p > 100*time.Millisecond {
				t.Errorf("shard %d: called again after %v (%v), %d calls", index, p, ok, calls[index])
			}
		}
	})
}

// What a function returns is told unless it only says that its context has ended.
func TestErrorThatIsNotTheEndOfTheContextIsTold(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		failed := errors.New("failed")
		for name, c := range map[string]struct {
			fn   func(ctx context.Context, s *shard.Shard) error
			told bool
		}{
			"canceled, and it lives": {func(context.Context, *shard.Shard) error { return context.Canceled }, true},
			"canceled": {func(ctx context.Context, _ *shard.Shard) error {
				<-ctx.Done()
				return ctx.Err()
			}, false},
			"canceled by gRPC": {func(ctx context.Context, _ *shard.Shard) error {
				<-ctx.Done()
				return status.FromContextError(ctx.Err()).Err()
			}, false},
			"nil at the end": {func(ctx context.Context, _ *shard.Shard) error { <-ctx.Done(); return nil }, false},
			"another error at the end": {func(ctx context.Context, _ *shard.Shard) error {
				<-ctx.Done()
				return failed
			}, true},
		} {
			f := newFleet(t, srv, 1)
			var told atomic.Int64
			r := f.startWith(kit.Start(t, srv), "a", c.fn, func(o *shard.Options) {
				o.OnError = func(_ int, err error) {
					if told.Add(1); errors.Is(err, shard.ErrReturned) {
						t.Errorf("%s: %v", name, err)
					}
				}
			})
			time.Sleep(settled)
			r.stop()
			synctest.Wait()
			if n := told.Load(); (n > 0) != c.told {
				t.Errorf("%s: told %d times", name, n)
			}
		}
	})
}

// It is told each time, and called less and less often. A shard that comes back to this member begins anew.
func TestFunctionThatReturnsNilIsToldAndCalledSeldom(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 1)
		var mu sync.Mutex
		var calls, told int
		count := func(n *int) {
			mu.Lock()
			defer mu.Unlock()
			*n++
		}
		p, m := metered(t, srv)
		f.startWith(p, "a", func(context.Context, *shard.Shard) error { count(&calls); return nil },
			func(o *shard.Options) {
				o.Retry.Rand = func() float64 { return 0.999 }
				o.OnError = func(index int, err error) {
					if index != 0 || !errors.Is(err, shard.ErrReturned) {
						t.Errorf("%d: %v", index, err)
					}
					count(&told)
				}
			})
		time.Sleep(10 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if calls < 10 || calls > 30 || told != calls {
			t.Errorf("%d calls, told %d times", calls, told)
		}
		m.expect("afterwards", "holdfast.shard.failures", map[string]int{"returned": calls})
	})
}

func TestWithoutOnErrorTheLogIsTold(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 1)
		var log bytes.Buffer
		r := f.startWith(kit.Start(t, srv, holdtest.LogTo(&log)), "a", func(context.Context, *shard.Shard) error {
			return errors.New("broken")
		})
		time.Sleep(settled)
		r.stop()
		if text := log.String(); !strings.Contains(text, "shard=0 error=broken") || strings.Contains(text, "level=ERROR") {
			t.Error(text)
		}
	})
}

// What ends Run is no failure of a shard. It waits for some that another member still owns.
func TestWhatEndsRunIsNotToldOfEachShard(t *testing.T) {
	for why, end := range map[error]func(srv *etcdfake.Server, r *running){
		holdfast.ErrClosed:       func(_ *etcdfake.Server, r *running) { _ = r.Sess.Close(context.Background()) },
		holdfast.ErrClientClosed: func(_ *etcdfake.Server, r *running) { _ = r.Sess.Client().Close() },
		holdfast.ErrLost:         func(srv *etcdfake.Server, r *running) { srv.Revoke(r.Sess.Lease()) },
		context.Canceled:         func(_ *etcdfake.Server, r *running) { r.leave() },
	} {
		t.Run(why.Error(), func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				f := newFleet(t, srv, 64) // some of the waits end before Run does
				f.start("a", 2*settled)
				time.Sleep(settled)
				b := f.startWith(closable(t, srv), "b", f.work("b", 0), func(o *shard.Options) {
					o.OnError = func(index int, err error) { t.Errorf("shard %d: %v", index, err) }
				})
				time.Sleep(settled)
				end(srv, b)
				<-b.done
				if !errors.Is(b.err, why) {
					t.Errorf("Run: %v", b.err)
				}
			})
		})
	}
}

// A panic is not swallowed. If no caller is left to receive it, it ends the process, as on any goroutine. This test
// runs its binary again to see that.
func TestPanicOfAnAbandonedFunctionEndsTheProcess(t *testing.T) {
	const child, bug = "HOLDFAST_TEST_ABANDONED", "a bug of the abandoned function's"
	if os.Getenv(child) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), child+"=1")
		out, err := cmd.CombinedOutput()
		if !errors.As(err, new(*exec.ExitError)) || !strings.Contains(string(out), "panic: "+bug) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f, release := newFleet(t, srv, 1), make(chan struct{})
		r := f.startWith(kit.Start(t, srv), "a", func(context.Context, *shard.Shard) error { <-release; panic(bug) },
			func(o *shard.Options) { o.DrainTimeout = time.Second })
		time.Sleep(settled)
		if r.stop(); !errors.Is(r.err, shard.ErrNotDrained) {
			t.Fatal(r.err)
		}
		close(release)
		time.Sleep(time.Hour)
	})
}
