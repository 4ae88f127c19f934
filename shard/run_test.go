package shard_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/member"
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
		f.even("retiring", "a", "b")
		if kvs := srv.Keys(entries); len(kvs) != 1+2*(4+2) {
			t.Errorf("%d keys: no member queues for the shards", len(kvs))
		}
		<-a.done
		time.Sleep(time.Second / 10)
		f.even("afterwards", "b")
		a.stop()
	})
}

func TestPanicEndsRunAfterAllFunctionsHaveReturned(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 4)
		work := f.work("a", 2*time.Second)
		var log bytes.Buffer
		r := f.startWith(kit.Start(t, srv, holdtest.LogTo(&log)), "a", func(ctx context.Context, s *shard.Shard) error {
			if s.Index() == 3 {
				time.Sleep(time.Second)
				panic("out of order")
			}
			err := work(ctx, s)
			if s.Index() == 2 {
				panic("a consequence")
			}
			return err
		})
		<-r.done
		if r.err == nil || r.err.Error() != "panic: out of order" {
			t.Errorf("%v", r.err)
		}
		if len(f.begun) != 3 || len(f.owner) != 0 {
			t.Errorf("begun %v, still running %v", f.begun, f.owner)
		}
		if n := strings.Count(log.String(), "shard_test.TestPanicEndsRunAfterAllFunctionsHaveReturned.func"); n != 2 {
			t.Errorf("%d stacks were logged:\n%s", n, &log)
		}
		f.empty()
	})
}

// A test that fails in a function ends it so.
func TestGoexitEndsRunAfterAllFunctionsHaveReturned(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 2)
		work := f.work("a", time.Second)
		r := f.startWith(kit.Start(t, srv), "a", func(ctx context.Context, s *shard.Shard) error {
			if s.Index() == 1 {
				runtime.Goexit()
			}
			return work(ctx, s)
		})
		<-r.done
		if r.err != nil || f.owned() != 0 {
			t.Errorf("Run has returned %v, or panicked; %d functions run", r.err, f.owned())
		}
		f.empty()
	})
}

// The process is to crash, not to stand there until etcd is back.
func TestPanicEndsRunWhileEtcdIsAway(t *testing.T) {
	away := func(r *running) { r.Link.BlackHole() }
	for name, c := range map[string]struct {
		happens func(r *running)
		after   time.Duration
		change  []func(*shard.Options)
	}{
		"lost":                   {away, kit.TTL, nil},
		"lost, with Rejoin":      {away, kit.TTL, []func(*shard.Options){withRejoin}},
		"suspended, with Rejoin": {away, time.Second, []func(*shard.Options){withRejoin}},
		"connected, and no Txn is answered": {func(r *running) {
			r.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
				_, f.Silent = c.Request.(*pb.TxnRequest)
				f.LoseRequest = f.Silent
				return f
			})
		}, time.Second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				f := newFleet(t, srv, 2)
				crash := make(chan struct{})
				r := f.startWith(kit.Start(t, srv), "a", func(ctx context.Context, s *shard.Shard) error {
					<-crash
					panic("out of order")
				}, c.change...)
				time.Sleep(settled)
				c.happens(r)
				time.Sleep(c.after)
				began := time.Now()
				close(crash)
				<-r.done
				if took := time.Since(began); r.err == nil || r.err.Error() != "panic: out of order" || took > mostToLeave {
					t.Errorf("after %v: %v", took, r.err)
				}
				r.Heal()
			})
		})
	}
}

// mostToLeave is how long Run takes to end, at most, after a panic of all functions: the release has CloseTimeout, the
// member a second to say that it retires, and CloseTimeout to leave.
const mostToLeave = time.Second + 2*kit.CloseTimeout

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

// The other member of its session stands on the same lease.
func TestMemberWhoseKeyWasDeletedPutsItAgainBesideAnotherOfItsSession(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f, p := newFleet(t, srv, 4), kit.Start(t, srv)
		f.startWith(p, "a", f.work("a", 0))
		time.Sleep(settled)
		own := string(srv.Keys(members)[0].Key)
		f.startWith(p, "b", f.work("b", 0))
		time.Sleep(settled)
		srv.Delete(own)
		time.Sleep(settled)
		if keys := kit.KeysOf(srv.Keys(members)); len(keys) != 2 || !slices.Contains(keys, own) {
			t.Errorf("%q stand, %q was deleted", keys, own)
		}
		f.even("afterwards", "a", "b")
	})
}

// It hears of the deletion while its renewals have no reply, and the next one is confirmed in time.
func TestMemberWhoseKeyWasDeletedInASuspensionKeepsItsShards(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 4)
		r := f.start("a", 0)
		time.Sleep(settled)
		r.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
			_, f.Silent = c.Request.(*pb.LeaseKeepAliveRequest)
			f.LoseRequest = f.Silent
			return f
		})
		for r.Sess.State() != holdfast.Suspended {
			time.Sleep(100 * time.Millisecond)
		}
		lease := r.Sess.Lease()
		srv.Delete(string(srv.Keys(members)[0].Key))
		time.Sleep(time.Second)
		r.Link.Plan(nil)
		time.Sleep(settled)
		f.even("afterwards", "a")
		if r.Sess.Lease() != lease || f.calls() != 4 || len(srv.Keys(members)) != 1 {
			t.Errorf("lease %x, before %x; %d calls; members %v", r.Sess.Lease(), lease, f.calls(), srv.Keys(members))
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
		time.Sleep(kit.LockDelay + time.Second) // begin fails if a function of a still runs
		f.even("while the one that has joined anew has not settled", "b")
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

// Run has not joined yet, and waits for etcd.
func TestRunThatHasNotBegunEndsWithItsSession(t *testing.T) {
	closed := map[error]func(p *kit.Process){
		holdfast.ErrClosed:       func(p *kit.Process) { _ = p.Sess.Close(context.Background()) },
		holdfast.ErrClientClosed: func(p *kit.Process) { _ = p.Sess.Client().Close() },
	}
	for why, end := range closed {
		for _, request := range []string{"", "enqueue", "read"} { // closed before; of the number; of the members
			t.Run(why.Error()+", "+request, func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					f, p := newFleet(t, srv, 1), closable(t, srv)
					p.PlanAll(request, etcdfake.Fate{LoseRequest: true, Silent: true})
					if request == "" {
						end(p)
					}
					r := f.startWith(p, "a", f.work("a", 0))
					if request != "" {
						time.Sleep(time.Second)
						end(p)
					}
					select {
					case <-r.done:
						if !errors.Is(r.err, why) {
							t.Errorf("Run: %v, want %v", r.err, why)
						}
					case <-time.After(time.Minute):
						t.Error("Run waits for etcd")
					}
					p.Plan(nil)
				})
			})
		}
	}
}

// closable is a process whose client may be closed before its session.
func closable(t *testing.T, srv *etcdfake.Server) *kit.Process {
	link := srv.Link()
	sess, err := session.New(t.Context(), link.Client(), session.Options{
		Clock: session.MonotonicClock(), Logger: slog.New(slog.DiscardHandler), StayLost: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sess.Close(context.Background()) })
	return &kit.Process{Link: link, Sess: sess}
}

// A member without a shard asks etcd for none, so nothing refuses it one.
func TestRunOfAMemberWithoutAShardEndsWithItsSession(t *testing.T) {
	stayLost := func(o *session.Options) { o.StayLost = true }
	for name, c := range map[string]struct {
		end func(t *testing.T, srv *etcdfake.Server, r *running)
		why error
	}{
		"closed": {func(t *testing.T, _ *etcdfake.Server, r *running) {
			must(t, r.Sess.Close(kit.Within(t, time.Minute)))
		}, holdfast.ErrClosed},
		"lost for good": {func(_ *testing.T, srv *etcdfake.Server, r *running) {
			srv.Revoke(r.Sess.Lease())
		}, holdfast.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				f := newFleet(t, srv, 1)
				var all []*running
				for _, name := range []string{"a", "b"} {
					all = append(all, f.startWith(kit.Start(t, srv, stayLost), name, f.work(name, 0)))
				}
				time.Sleep(settled)
				owner := f.owners()[0]
				idle := slices.IndexFunc(all, func(r *running) bool { return r.name != owner })
				c.end(t, srv, all[idle])
				select {
				case <-all[idle].done:
					if err := all[idle].err; !errors.Is(err, c.why) {
						t.Errorf("Run: %v, want %v", err, c.why)
					}
				case <-time.After(time.Minute):
					t.Error("Run has not returned for a minute")
				}
				f.even("the other one goes on", all[1-idle].name)
			})
		})
	}
}

// etcd refuses what the role lacks a permission for.
func TestRunEndsWithoutItsPermissions(t *testing.T) {
	reads := func(c etcdfake.Call) bool {
		r, ok := c.Request.(*pb.RangeRequest)
		return ok && strings.HasPrefix(members, string(r.Key))
	}
	puts := func(c etcdfake.Call) bool {
		r, ok := c.Request.(*pb.TxnRequest)
		return ok && len(r.Success) > 0 && strings.HasPrefix(string(r.Success[0].GetRequestPut().GetKey()), members)
	}
	for name, c := range map[string]struct {
		refused func(etcdfake.Call) bool
		after   time.Duration // since Run has begun
		joins   int
	}{
		"to read the members":        {reads, 0, 0},
		"to put its key":             {puts, 0, 0},
		"to read the members, later": {reads, settled, 1},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				f, p := newFleet(t, srv, 2), kit.Start(t, srv)
				began := time.Now()
				p.Link.Plan(func(call etcdfake.Call) (fate etcdfake.Fate) {
					if time.Since(began) >= c.after && c.refused(call) {
						fate = etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied}
					}
					return fate
				})
				r := f.startWith(p, "a", f.work("a", 0))
				select {
				case <-r.done:
				case <-time.After(10 * time.Minute): // the members are read each 5 minutes
					t.Fatal("Run has not ended")
				}
				if etcderr.Classify(r.err) != etcderr.Unauthorized || f.owned() != 0 {
					t.Errorf("%v; %d functions run", r.err, f.owned())
				}
				if n := kit.PutsEver(srv, members); n > 2*c.joins || n < c.joins { // it joins, and retires
					t.Errorf("its key was put %d times", n)
				}
			})
		})
	}
}

func TestRunSaysWhyItsContextHasEnded(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, why := kit.Start(t, srv), errors.New("the node is drained")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(settled, func() { cancel(why) })
		err := shard.New(p.Sess, "orders", 1).Run(ctx, newFleet(t, srv, 1).work("a", 0))
		if !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
			t.Errorf("%v", err)
		}
	})
}

// So the next owner waits already when a function returns.
func TestRunRetiresBeforeItsFunctionsEnd(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 1)
		r := f.startWith(kit.Start(t, srv), "a", func(ctx context.Context, _ *shard.Shard) error {
			<-ctx.Done()
			if v := string(srv.Keys(members)[0].Value); !strings.Contains(v, `"draining":true`) {
				t.Errorf("the function ends, and its member says %s", v)
			}
			return nil
		})
		time.Sleep(settled)
		r.delayed()
		r.stop()
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
			"Options.Retry":        run(p.Sess, "orders", 1, shard.Options{Retry: backoff.Policy{Initial: -1}}),
			"ctx":                  shard.New(p.Sess, "orders", 1).Run(noContext, fn),
			"fn":                   shard.New(p.Sess, "orders", 1).Run(t.Context(), nil),
			"Options.DrainTimeout": run(p.Sess, "orders", 1, shard.Options{DrainTimeout: -1}),
			"Options.Member":       run(p.Sess, "orders", 1, shard.Options{Member: long}),
			"Options.Value":        run(p.Sess, "orders", 1, shard.Options{Value: long}),
			"Options.Settle":       run(p.Sess, "orders", 1, shard.Options{Settle: time.Hour + 1}),
		} {
			var bad *holdfast.ArgumentError
			if !errors.As(err, &bad) || bad.Argument != argument {
				t.Errorf("%s: %v", argument, err)
			}
		}
		var bad *holdfast.ArgumentError
		if err := run(p.Sess, "orders", 0, shard.Options{}); !errors.As(err, &bad) || bad.Argument != "n" {
			t.Errorf("no shards: %v", err)
		}
		var none *shard.Shards
		if err := none.Run(t.Context(), fn); !errors.As(err, &bad) || bad.Argument != "sess" {
			t.Errorf("nil: %v", err)
		}
		for _, rejoin := range []time.Duration{-1, member.MinRejoin - 1, member.MaxRejoin + 1} {
			err := run(p.Sess, "orders", 1, shard.Options{Member: "a", Rejoin: rejoin})
			if !errors.As(err, &bad) || bad.Argument != "Options.Rejoin" {
				t.Errorf("Rejoin %v: %v", rejoin, err)
			}
		}
		for _, name := range []string{long[:member.MaxName+1], long[:member.MaxValue+1]} {
			if err := run(p.Sess, "orders", 1, shard.Options{Member: name}); !errors.As(err, &bad) {
				t.Errorf("a name of %d bytes: %v", len(name), err)
			}
		}
		if err := run(p.Sess, "orders", 1, shard.Options{Value: long[:member.MaxValue+1]}); !errors.As(err, &bad) {
			t.Errorf("a long value: %v", err)
		}
		if err := run(p.Sess, "orders", 1, shard.Options{Member: "\xff"}); !errors.As(err, &bad) ||
			bad.Argument != "Options.Member" {
			t.Errorf("a name that is no UTF-8: %v", err)
		}
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

func TestLargestOptionsAreAccepted(t *testing.T) {
	for _, rejoin := range []time.Duration{member.MinRejoin, member.MaxRejoin} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			p := kit.Start(t, srv, func(o *session.Options) { o.Anonymous = true })
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := shard.New(p.Sess, strings.Repeat("n", 500), shard.MaxCount).With(shard.Options{
				Member: strings.Repeat("x", member.MaxName), Value: strings.Repeat("v", member.MaxValue), Rejoin: rejoin,
				Settle: time.Hour,
			}).Run(ctx, func(context.Context, *shard.Shard) error { return nil })
			if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(*holdfast.ArgumentError)) {
				t.Error(err)
			}
		})
	}
}

// Two processes of one name, as during a restart: the key of one is deleted by hand, and the other's is not its own.
func TestOwnKeyIsPutAgainBesideATwin(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 4)
		f.start("a", 0)
		time.Sleep(settled)
		own := string(srv.Keys(members)[0].Key)
		f.start("a", 0)
		time.Sleep(settled)
		srv.Delete(own)
		time.Sleep(settled)
		if keys := kit.KeysOf(srv.Keys(members)); len(keys) != 2 || !slices.Contains(keys, own) {
			t.Errorf("%q stand, %q was deleted", keys, own)
		}
	})
}
