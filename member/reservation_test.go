package member_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/member"
	"github.com/holdfast-go/holdfast/session"
)

const rejoin = 20 * time.Second

// absence is the absent members, as a reader finds them.
func absence(t *testing.T, srv *etcdfake.Server) (names []string) {
	t.Helper()
	g, err := member.NewReader(srv.Client(t), "workers").Members(kit.Within(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range g.Absent {
		names = append(names, m.Name)
	}
	return names
}

func TestMemberThatHasLeftIsAbsentForRejoin(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a := join(t, kit.Start(t, srv), member.Options{Name: "a", Rejoin: rejoin})
		b := join(t, kit.Start(t, srv), member.Options{Name: "b"})
		time.Sleep(time.Second)
		expect(t, "while they are there", absence(t, srv))
		for range 2 {
			if err := errors.Join(a.Leave(t.Context()), b.Leave(t.Context())); err != nil {
				t.Error(err)
			}
		}
		expect(t, "members", group(t, srv))
		expect(t, "both have left", absence(t, srv), "a")
		time.Sleep(rejoin - time.Second)
		expect(t, "before Rejoin", absence(t, srv), "a")
		again := join(t, kit.Start(t, srv), member.Options{Name: "a"})
		expect(t, "it is back", absence(t, srv))
		if err := again.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		expect(t, "after Rejoin", absence(t, srv))
		if kvs := srv.Keys(keys); len(kvs) > 0 {
			t.Errorf("left: %s", kvs[0].Key)
		}
	})
}

// The reservation of its first stay still stands when it has left for the second time.
func TestAbsentMemberIsAsItWasLast(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		for _, weight := range []int{1, 3} {
			m := join(t, kit.Start(t, srv), member.Options{
				Name: "a", Rejoin: time.Hour, Capacity: member.Capacity{Weight: weight},
			})
			time.Sleep(time.Second)
			if err := m.Leave(t.Context()); err != nil {
				t.Error(err)
			}
		}
		g, err := member.NewReader(srv.Client(t), "workers").Members(t.Context())
		if err != nil || len(g.Absent) != 1 || g.Absent[0].Weight != 3 {
			t.Errorf("%+v, %v", g.Absent, err)
		}
	})
}

// One leaves before its reservation stands.
func TestMemberThatLeavesAtOnceIsAbsentForRejoin(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a := join(t, kit.Start(t, srv), member.Options{Name: "a", Rejoin: rejoin})
		if err := a.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		expect(t, "at once", absence(t, srv), "a")
		time.Sleep(rejoin + 2*time.Second)
		expect(t, "after Rejoin", absence(t, srv))
	})
}

// It dies at any time between two renewals of its reservation. Its key has gone up to the TTL later.
func TestMemberThatHasDiedIsAbsentForRejoin(t *testing.T) {
	for died := time.Minute; died < time.Minute+rejoin/2; died += time.Second {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			p := kit.Start(t, srv)
			join(t, p, member.Options{Name: "a", Rejoin: rejoin})
			time.Sleep(died)
			p.Link.BlackHole()
			for len(group(t, srv)) > 0 {
				time.Sleep(100 * time.Millisecond)
			}
			gone := time.Now()
			for len(absence(t, srv)) > 0 {
				time.Sleep(100 * time.Millisecond)
			}
			if d := time.Since(gone); d < rejoin || d > rejoin+rejoin/2+kit.TTL {
				t.Errorf("died after %v: absent for %v", died, d)
			}
		})
	}
}

// It comes back as the member does.
func TestReservationOfACutOffMemberEnds(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		join(t, p, member.Options{Name: "a", Rejoin: rejoin})
		time.Sleep(time.Second)
		p.Link.Cut()
		time.Sleep(2*rejoin + 2*kit.TTL)
		if kvs := srv.Keys(keys); len(kvs) > 0 {
			t.Errorf("it stands: %s", kvs[0].Key)
		}
		p.Heal()
		time.Sleep(rejoin)
		if kvs := srv.Keys(keys); len(kvs) != 2 {
			t.Errorf("%d keys, want the member and its reservation", len(kvs))
		}
	})
}

// Under StayLost no lease follows, so the member does not come back, as after a death.
func TestReservationEndsAfterAFinalLoss(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv, func(o *session.Options) { o.StayLost = true })
		join(t, p, member.Options{Name: "a", Rejoin: rejoin})
		time.Sleep(time.Second)
		srv.Revoke(p.Sess.Lease())
		time.Sleep(rejoin - time.Second)
		expect(t, "within Rejoin", absence(t, srv), "a")
		time.Sleep(rejoin + kit.TTL)
		expect(t, "after Rejoin", absence(t, srv))
	})
}

// So it stands for Rejoin after the key of a member that dies, and for half as long before its next renewal.
func TestLeaseOfAReservation(t *testing.T) {
	for rejoin, want := range map[time.Duration]time.Duration{
		20 * time.Second: kit.TTL + 30*time.Second, 1500 * time.Millisecond: kit.TTL + 3*time.Second, // whole seconds
	} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			join(t, kit.Start(t, srv), member.Options{Name: "a", Rejoin: rejoin})
			time.Sleep(100 * time.Millisecond)
			for _, kv := range srv.Keys(keys + "reserved-") {
				if lasts := time.Until(srv.Expires(clientv3.LeaseID(kv.Lease))).Round(time.Second); lasts != want {
					t.Errorf("Rejoin %v: it lasts %v, want %v", rejoin, lasts, want)
				}
			}
		})
	}
}

// etcd refuses it for a while, as to a role without the permission.
func TestReservationIsPutOnceEtcdAllowsIt(t *testing.T) {
	const rejoin = time.Minute
	for _, method := range []string{"LeaseGrant", "Txn"} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			var log bytes.Buffer
			p := kit.Start(t, srv, func(o *session.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			m := join(t, p, member.Options{Name: "a", Rejoin: rejoin})
			time.Sleep(time.Second)
			sent := 0
			p.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
				txn, isTxn := c.Request.(*pb.TxnRequest)
				if c.Method == method && (!isTxn || strings.Contains(txn.String(), "reserved-")) {
					sent++
					f = etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied}
				}
				return f
			})
			if err := m.SetCapacity(t.Context(), member.Capacity{Weight: 7}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			warned := strings.Count(log.String(), "was not renewed")
			if sent < 8 || sent > 15 || warned != sent {
				t.Errorf("%s was sent %d times in a minute, and warned of %d times", method, sent, warned)
			}
			p.Link.Plan(nil)
			time.Sleep(10 * time.Second)
			p.Link.BlackHole()
			time.Sleep(kit.TTL + time.Second)
			g, err := member.NewReader(srv.Client(t), "workers").Members(t.Context())
			if err != nil || len(g.Absent) != 1 || g.Absent[0].Weight != 7 {
				t.Errorf("%s: %+v, %v", method, g.Absent, err)
			}
			synctest.Wait()
			if n := strings.Count(log.String(), "was not renewed"); n != warned {
				t.Errorf("%d warnings, %d while it was refused", n, warned)
			}
		})
	}
}

// Its reservation tells the capacity at once, for it may die before the next renewal.
func TestReservationFollowsTheCapacity(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		m := join(t, p, member.Options{Name: "a", Rejoin: time.Hour})
		time.Sleep(time.Second)
		if err := m.SetCapacity(t.Context(), member.Capacity{Weight: 7}); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		p.Link.BlackHole()
		time.Sleep(kit.TTL + time.Second)
		g, err := member.NewReader(srv.Client(t), "workers").Members(t.Context())
		if err != nil || len(g.Absent) != 1 || g.Absent[0].Weight != 7 {
			t.Errorf("%+v, %v", g.Absent, err)
		}
	})
}

// It leaves all the same, and the log says what others do not wait for.
func TestLeaveWithoutAReservationIsLogged(t *testing.T) {
	for _, refused := range []bool{false, true} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			var log bytes.Buffer
			p := kit.Start(t, srv, func(o *session.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			m := join(t, p, member.Options{Name: "a", Rejoin: rejoin})
			time.Sleep(time.Second)
			p.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
				if refused && c.Method == "LeaseGrant" {
					f = etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied}
				}
				return f
			})
			if err := m.Leave(t.Context()); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			logged := strings.Contains(log.String(), "without a reservation")
			if logged != refused || !refused && log.Len() > 0 {
				t.Errorf("refused %v, log:\n%s", refused, &log)
			}
			p.Link.Plan(nil)
		})
	}
}

// A renewal has no reply, and ends with the membership: that is no failure.
func TestLeaveDuringARenewalOfTheReservationIsNotLogged(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		p := kit.Start(t, srv, func(o *session.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		m := join(t, p, member.Options{Name: "a", Rejoin: rejoin})
		time.Sleep(time.Second)
		own, hung := srv.Keys(keys + "reserved-")[0].Lease, 0
		p.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
			if r, ok := c.Request.(*pb.LeaseKeepAliveRequest); ok && r.ID == own {
				hung++
				f = etcdfake.Fate{LoseRequest: true, Silent: true}
			}
			return f
		})
		time.Sleep(rejoin / 2)
		if err := m.Leave(t.Context()); err != nil || hung == 0 {
			t.Errorf("%d renewals hang; %v", hung, err)
		}
		if synctest.Wait(); log.Len() > 0 {
			t.Error(log.String())
		}
		p.Link.Plan(nil)
	})
}

func TestNothingIsReservedAfterClose(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		m := join(t, p, member.Options{Name: "a", Rejoin: rejoin})
		time.Sleep(time.Second)
		if err := p.Sess.Close(t.Context()); err != nil {
			t.Error(err)
		}
		before := p.Link.Count()
		if err := m.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if after := p.Link.Count(); !maps.Equal(before, after) {
			t.Errorf("sent %v, before %v", after, before)
		}
	})
}

// As Options.Rejoin says.
func TestReservationCostsARenewalInHalfOfRejoin(t *testing.T) {
	const d = 20 * rejoin
	sent := func(o member.Options) (n int) {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			p := kit.Start(t, srv)
			join(t, p, o)
			time.Sleep(time.Second)
			p.Plan(nil)
			time.Sleep(d)
			for kind, count := range p.Counts() {
				n += count
				if kind != "session" && kind != "LeaseKeepAlive" {
					t.Errorf("%d of %s", count, kind)
				}
			}
		})
		return n
	}
	more := sent(member.Options{Rejoin: rejoin}) - sent(member.Options{})
	if want := int(d / (rejoin / 2)); more < want-2 || more > want+2 {
		t.Errorf("%d requests more in %v, want %d", more, d, want)
	}
}

// etcd has answered neither the Grant nor the put; each is sent again.
func TestReservationStandsThoughRepliesAreLost(t *testing.T) {
	for _, method := range []string{"LeaseGrant", "Txn"} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			p := kit.Start(t, srv)
			lost := 0
			a := join(t, p, member.Options{Name: "a", Rejoin: rejoin})
			p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
				f := etcdfake.Fate{Request: kit.OneWay, Reply: kit.OneWay}
				if c.Method == method && c.Request != nil {
					lost++
					f.LoseReply, f.Silent = lost == 1, lost == 1
				}
				return f
			})
			if err := a.Leave(t.Context()); err != nil {
				t.Error(err)
			}
			if lost < 2 {
				t.Errorf("%s was sent %d times", method, lost)
			}
			expect(t, method+": it has left", absence(t, srv), "a")
			time.Sleep(2*rejoin + kit.TTL)
			if kvs := srv.Keys(keys); len(kvs) > 0 {
				t.Errorf("%s: left: %s", method, kvs[0].Key)
			}
		})
	}
}

func TestRejoinOutOfRangeIsRefused(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		for _, d := range []time.Duration{-1, member.MinRejoin - 1, member.MaxRejoin + 1} {
			_, err := member.Join(context.Background(), p.Sess, "workers", member.Options{Rejoin: d})
			var bad *holdfast.ArgumentError
			if !errors.As(err, &bad) || bad.Argument != "Options.Rejoin" {
				t.Errorf("%v: %v", d, err)
			}
		}
	})
}
