package member_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/member"
	"github.com/holdfast-go/holdfast/session"
)

// One request after the other is spoiled; what was wanted last stands, and a copy that arrives later changes nothing.
func TestMemberIsAsWantedThoughMessagesAreLost(t *testing.T) {
	for name, fate := range map[string]etcdfake.Fate{
		"the reply":             {LoseReply: true, Code: codes.Unavailable},
		"the request":           {LoseRequest: true, Code: codes.Unavailable},
		"the reply, silently":   {LoseReply: true, Silent: true},
		"the reply, by a proxy": {LoseReply: true, Code: codes.Canceled},
		"late":                  {Request: time.Minute},
	} {
		for n := range 4 {
			t.Run(fmt.Sprintf("%s, of request %d", name, n+1), func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					p := kit.Start(t, srv)
					sent := 0
					p.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
						if writes(c) {
							if sent == n {
								f = fate
							}
							sent++
						}
						return f
					})
					m := join(t, p, member.Options{Name: "a", Value: "1"})
					for _, value := range []string{"2", "3"} {
						if err := m.Update(kit.Within(t, time.Minute), value); err != nil {
							t.Error(err)
						}
						expect(t, "updated", group(t, srv), "a="+value)
					}
					if n < 3 {
						time.Sleep(2 * time.Minute)
						expect(t, "later", group(t, srv), "a=3")
					}
					if err := m.Leave(kit.Within(t, time.Minute)); err != nil {
						t.Error(err)
					}
					expect(t, "left", group(t, srv))
					time.Sleep(2 * time.Minute)
					if expect(t, "long after", group(t, srv)); sent <= n {
						t.Errorf("sent %d requests", sent)
					}
				})
			})
		}
	}
}

// The put arrives when the process has long left, also if later ones were answered.
func TestNothingIsPutAfterLeave(t *testing.T) {
	for _, updates := range []int{0, 1} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) { nothingIsPutAfterLeave(t, srv, updates) })
	}
}

func nothingIsPutAfterLeave(t *testing.T, srv *etcdfake.Server, updates int) {
	p := kit.Start(t, srv)
	first := true
	p.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
		if writes(c) && first {
			first, f = false, etcdfake.Fate{Request: time.Hour}
		}
		return f
	})
	m := join(t, p, member.Options{})
	for range updates {
		if err := m.Update(kit.Within(t, time.Minute), "2"); err != nil {
			t.Error(err)
		}
	}
	if err := m.Leave(kit.Within(t, time.Minute)); err != nil {
		t.Error(err)
	}
	time.Sleep(2 * time.Hour)
	if h := srv.History(keys); first || len(h) != 2+updates || !h[1+updates].Deleted {
		t.Errorf("history %v", h)
	}
}

// fills is the store of an etcd that the first key of a member fills: that is put, and all puts are answered with
// "database space exceeded".
type fills struct {
	pb.KVClient
	full atomic.Bool
}

// Put implements pb.KVClient.
func (f *fills) Put(ctx context.Context, r *pb.PutRequest, opts ...grpc.CallOption) (*pb.PutResponse, error) {
	if f.full.Load() {
		return nil, rpctypes.ErrGRPCNoSpace
	}
	return f.KVClient.Put(ctx, r, opts...)
}

// Txn implements pb.KVClient.
func (f *fills) Txn(ctx context.Context, r *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	text := r.String()
	if !strings.Contains(text, keys) || !strings.Contains(text, "request_put") {
		return f.KVClient.Txn(ctx, r, opts...)
	}
	if !f.full.Swap(true) {
		if resp, err := f.KVClient.Txn(ctx, r, opts...); err != nil {
			return resp, err
		}
	}
	return nil, rpctypes.ErrGRPCNoSpace
}

// Etcd carries out the put that fills its store, and refuses those after it, but no deletion.
func TestJoinThatFillsTheStoreLeavesNothing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		cli := link.Client()
		cli.KV = clientv3.NewKVFromKVClient(&fills{KVClient: link.KVClient()}, cli)
		p := kit.StartOn(t, link, cli)
		_, err := member.Join(kit.Within(t, 5*time.Second), p.Sess, "workers", member.Options{Name: "a"})
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Errorf("Join: %v", err)
		}
		if h := srv.History(keys); len(h) == 0 {
			t.Error("the key was not put")
		}
		time.Sleep(5 * time.Second)
		expect(t, "afterwards", group(t, srv))
	})
}

// Join has given up, so no caller is left to be told. The session goes on until etcd lets it.
func TestKeyOfAJoinThatGaveUpIsRemovedOnceEtcdAllowsIt(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate { return etcdfake.Fate{LoseReply: writes(c), Silent: writes(c)} })
		_, err := member.Join(kit.Within(t, time.Second), p.Sess, "workers", member.Options{Name: "a"})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Join: %v", err)
		}
		// The put may arrive after a deletion, unless the session key is put before that.
		p.KV.Refuse(func(ops []clientv3.Op) error {
			if slices.ContainsFunc(ops, clientv3.Op.IsPut) {
				return rpctypes.ErrPermissionDenied
			}
			return nil
		})
		p.Link.Plan(nil)
		time.Sleep(20 * time.Second)
		expect(t, "refused", group(t, srv), "a=")
		p.KV.Refuse(nil)
		time.Sleep(10 * time.Second)
		expect(t, "no more refused", group(t, srv))
	})
}

// What a membership needs ends with it, and not with its session.
func TestLeaveLeavesNoGoroutine(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		synctest.Wait()
		before := runtime.NumGoroutine()
		for range 20 {
			if err := join(t, p, member.Options{}).Leave(t.Context()); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if now := runtime.NumGoroutine(); now > before+9 {
			t.Errorf("%d goroutines, before %d", now, before)
		}
	})
}

func TestJoinThatEndsWithItsContextLeavesNothing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		p.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
			f.LoseReply = writes(c)
			f.Silent = f.LoseReply
			return f
		})
		_, err := member.Join(kit.Within(t, time.Second), p.Sess, "workers", member.Options{Name: "a"})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `join group "workers" as "a"`) {
			t.Errorf("%v", err)
		}
		p.Link.Plan(nil)
		time.Sleep(time.Minute)
		expect(t, "afterwards", group(t, srv))
		if h := srv.History(keys); len(h) != 2 {
			t.Errorf("history %v", h)
		}
	})
}

func TestLeaveEndsWithTheLeaseThatTheKeyGoesWith(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		m := join(t, p, member.Options{Name: "a"})
		p.Link.Cut()
		if err := m.Leave(kit.Within(t, kit.TTL+time.Second)); err != nil {
			t.Error(err)
		}
		p.Heal()
		time.Sleep(2 * kit.TTL)
		expect(t, "afterwards", group(t, srv))
		if h := srv.History(keys); len(h) != 2 {
			t.Errorf("history %v", h)
		}
	})
}

// The lease is lost before the call, or while the reservation is put, and etcd stays away: nothing is to be waited for.
func TestLeaveOfALostMemberReturnsWhileEtcdIsAway(t *testing.T) {
	for name, o := range map[string]member.Options{
		"without Rejoin": {Name: "a"}, "with Rejoin": {Name: "a", Rejoin: rejoin},
	} {
		for before, want := range map[time.Duration]time.Duration{kit.TTL: 0, time.Second: kit.Trust - time.Second} {
			t.Run(fmt.Sprintf("%s, %v after the cut", name, before), func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					p := kit.Start(t, srv)
					m := join(t, p, o)
					time.Sleep(time.Second)
					p.Link.BlackHole()
					time.Sleep(before)
					began := time.Now()
					err := m.Leave(kit.Within(t, time.Hour))
					if took := time.Since(began); err != nil || took > want {
						t.Errorf("after %v: %v", took, err)
					}
					if !errors.Is(m.Check(), holdfast.ErrReleased) {
						t.Errorf("Check: %v", m.Check())
					}
					p.Heal()
					time.Sleep(2 * kit.TTL)
					expect(t, "afterwards", group(t, srv))
				})
			})
		}
	}
}

// The context is that of a lock, which ends while etcd is silent. The key stands, so Leave is not done.
func TestLeaveIsNotDoneWhenALockHasEnded(t *testing.T) {
	for _, end := range []error{&holdfast.LostError{}, holdfast.ErrReleased, holdfast.ErrClosed} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			p := kit.Start(t, srv)
			m := join(t, p, member.Options{Name: "a"})
			p.Link.BlackHole()
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(end) })
			if err := m.Leave(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, end) {
				t.Errorf("%v: %v", end, err)
			}
			expect(t, "cut off", group(t, srv), "a=")
			p.Heal()
			time.Sleep(2 * kit.TTL)
			expect(t, "afterwards", group(t, srv))
		})
	}
}

func TestUpdateGoesOnAfterItsContext(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		m := join(t, p, member.Options{Name: "a", Value: "1"})
		p.Link.Cut()
		err := m.Update(kit.Within(t, kit.TTL/4), "2")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "etcd has not answered") {
			t.Errorf("%v", err)
		}
		expect(t, "cut off", group(t, srv), "a=1")
		p.Heal()
		time.Sleep(kit.TTL)
		expect(t, "healed", group(t, srv), "a=2")
	})
}

// Others put the session key, delete it, or delete the member's.
func TestUpdateAfterOthersHaveWritten(t *testing.T) {
	for name, do := range map[string]func(srv *etcdfake.Server, p *kit.Process){
		"the session key was put again": func(_ *etcdfake.Server, p *kit.Process) {
			if _, err := p.Host.PutSessionKey(context.Background(), p.Host.Lease()); err != nil {
				panic(err)
			}
		},
		"the session key was deleted": func(srv *etcdfake.Server, p *kit.Process) { srv.Delete(p.SessionKey()) },
		"the key was deleted": func(srv *etcdfake.Server, _ *kit.Process) {
			srv.Delete(string(srv.Keys(keys)[0].Key))
		},
		"the key was replaced": func(srv *etcdfake.Server, _ *kit.Process) {
			srv.Put(string(srv.Keys(keys)[0].Key), "?")
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := kit.Start(t, srv)
				m := join(t, p, member.Options{Name: "a", Value: "1"})
				do(srv, p)
				if err := m.Update(kit.Within(t, time.Minute), "2"); err != nil {
					t.Error(err)
				}
				if kvs := srv.Keys(keys); len(kvs) != 1 || kvs[0].Lease != int64(p.Sess.Lease()) {
					t.Errorf("keys %v", kvs)
				}
				expect(t, "updated", group(t, srv), "a=2")
			})
		})
	}
}

// etcd refuses the key as it does when the role has no permission for it.
func TestRefusedKeyIsAnErrorOfJoinAndIsTriedAgainLater(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		p := kit.Start(t, srv, func(o *session.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		var refused atomic.Bool
		refused.Store(true)
		p.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
			if refused.Load() && writes(c) {
				f = etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied}
			}
			return f
		})
		if _, err := member.Join(kit.Within(t, time.Minute), p.Sess, "workers", member.Options{}); err == nil ||
			errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "may have put") {
			t.Errorf("Join: %v", err)
		}
		refused.Store(false)
		m := join(t, p, member.Options{Name: "a", Value: "1"})
		if synctest.Wait(); log.Len() > 0 {
			t.Errorf("it has joined, log:\n%s", &log)
		}
		refused.Store(true)
		srv.Revoke(p.Sess.Lease())
		time.Sleep(kit.TTL)
		expect(t, "refused", group(t, srv))
		refused.Store(false)
		time.Sleep(10 * time.Second)
		expect(t, "no more refused", group(t, srv), "a=1")
		synctest.Wait()
		if err := m.Check(); err != nil || !strings.Contains(log.String(), "etcd refuses to write the key of a member") {
			t.Errorf("%v, log:\n%s", err, &log)
		}
		refused.Store(true)
		if err := m.Leave(kit.Within(t, time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Leave: %v", err)
		}
		refused.Store(false)
		time.Sleep(10 * time.Second)
		expect(t, "left", group(t, srv))
	})
}

// A role is withdrawn for longer than the lease lives: etcd refuses the session key of the next lease, and the session
// keeps trying. The member had ended with the refusal, so its shards would never have come back to it.
func TestMemberComesBackAfterItsRoleWasWithdrawnForLongerThanItsLease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		m := join(t, p, member.Options{Name: "a", Value: "1"})
		var withdrawn atomic.Bool
		p.Link.Plan(func(etcdfake.Call) (f etcdfake.Fate) {
			if withdrawn.Load() {
				f = etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied}
			}
			return f
		})
		withdrawn.Store(true)
		time.Sleep(time.Minute)
		if err := m.Check(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("without its role for a minute: %v", err)
		}
		err := joinErr(kit.Within(t, time.Minute), p.Sess, "workers", member.Options{Name: "b"})
		if etcderr.Classify(err) != etcderr.Unauthorized || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("another one joins: %v", err)
		}
		withdrawn.Store(false)
		time.Sleep(time.Minute)
		if err := m.Check(); err != nil {
			t.Errorf("a minute after its role was given back: %v", err)
		}
		expect(t, "given back", group(t, srv), "a=1")
		if err := m.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The session has not heard of that, and the put finds its key gone.
func TestJoinUnderALeaseThatWasRevokedTakesTheNextOne(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		p := kit.Start(t, srv, func(o *session.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		p.PlanAll("event", etcdfake.Fate{Reply: time.Hour})
		srv.Revoke(p.Sess.Lease())
		join(t, p, member.Options{Name: "a"})
		expect(t, "joined", group(t, srv), "a=")
		synctest.Wait()
		if strings.Contains(log.String(), "etcd refuses") {
			t.Errorf("log:\n%s", &log)
		}
	})
}

func TestMemberComesBackAfterTheStoreWasFullForLongerThanItsLease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		m := join(t, p, member.Options{Name: "a", Value: "1"})
		p.KV.Refuse(func([]clientv3.Op) error { return rpctypes.ErrNoSpace }) // deletions, too: there are none
		srv.Revoke(p.Sess.Lease())
		time.Sleep(time.Minute)
		if err := m.Check(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("without a lease for a minute: %v", err)
		}
		p.KV.Refuse(nil)
		time.Sleep(time.Minute)
		expect(t, "with space again", group(t, srv), "a=1")
		if err := m.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The first put is carried out, but not answered; the next is refused, as when a permission is withdrawn just then.
func TestJoinThatIsRefusedAfterAnUnansweredPutLeavesNothing(t *testing.T) {
	for name, c := range map[string]struct{ keepsDeletes, late bool }{
		"its key was put": {}, "its key is put later": {late: true}, "deletes are refused, too": {keepsDeletes: true},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := kit.Start(t, srv)
				puts := 0
				p.Link.Plan(func(call etcdfake.Call) (f etcdfake.Fate) {
					switch {
					case !writes(call):
					case strings.Contains(call.Request.(*pb.TxnRequest).String(), "delete_range"):
						if c.keepsDeletes {
							f = etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied}
						}
					case puts == 0 && c.late:
						puts, f = 1, etcdfake.Fate{Request: time.Minute}
					case puts == 0:
						puts, f = 1, etcdfake.Fate{LoseReply: true, Code: codes.Unavailable}
					default:
						f = etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied}
					}
					return f
				})
				_, err := member.Join(kit.Within(t, time.Minute), p.Sess, "workers", member.Options{})
				if err == nil || errors.Is(err, context.DeadlineExceeded) ||
					strings.Contains(err.Error(), "stands until lease") != c.keepsDeletes {
					t.Errorf("Join: %v", err)
				}
				if stands := len(srv.Keys(keys)) > 0; stands != c.keepsDeletes {
					t.Errorf("stands after Join: %v", stands)
				}
				time.Sleep(2 * time.Minute)
				if stands := len(srv.Keys(keys)) > 0; stands != c.keepsDeletes {
					t.Errorf("stands later: %v", stands)
				}
			})
		})
	}
}
