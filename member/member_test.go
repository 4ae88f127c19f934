package member_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/member"
	"github.com/holdfast-go/holdfast/session"
)

func TestMain(m *testing.M) { leak.Main(m) }

const keys = "holdfast/member/workers/@/"

func join(t *testing.T, p *kit.Process, o member.Options) *member.Member {
	t.Helper()
	m, err := member.Join(kit.Within(t, time.Minute), p.Sess, "workers", o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// group returns the members as a reader finds them, each as "name=value".
func group(t *testing.T, srv *etcdfake.Server) (found []string) {
	t.Helper()
	g, err := member.NewReader(srv.Client(t), "workers").Members(kit.Within(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return describe(g)
}

func describe(g member.Group) (found []string) {
	for _, m := range g.Members {
		text := m.Name + "=" + m.Value
		if m.Retiring {
			text += ", retiring"
		}
		found = append(found, text)
	}
	return found
}

func expect(t *testing.T, what string, found []string, want ...string) {
	t.Helper()
	if !slices.Equal(found, want) {
		t.Errorf("%s: %q, want %q", what, found, want)
	}
}

// writes reports whether a call puts or deletes a member's key.
func writes(c etcdfake.Call) bool {
	txn, ok := c.Request.(*pb.TxnRequest)
	return ok && strings.Contains(txn.String(), keys)
}

func TestMemberIsFoundFromJoinToLeave(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		p := kit.Start(t, srv, func(o *session.Options) { o.Owner = "node-1" })
		before := time.Now()
		m := join(t, p, member.Options{Value: "10.0.0.7:8080"})
		expect(t, "joined", group(t, srv), "node-1=10.0.0.7:8080")
		g, err := member.NewReader(srv.Client(t), "workers").Members(ctx)
		if err != nil {
			t.Fatal(err)
		}
		kv := srv.Keys(keys)[0]
		i := g.Members[0]
		if i.Owner != "node-1" || i.Host == "" || i.PID == 0 || i.Lease != p.Sess.Lease() || i.Key != string(kv.Key) ||
			i.Created != kv.CreateRevision || i.Modified != kv.ModRevision || g.Revision < i.Modified ||
			i.Joined.Before(before.Truncate(time.Millisecond)) || i.Joined.After(time.Now()) {
			t.Errorf("%+v at revision %d", i, g.Revision)
		}
		if m.Group() != "workers" || m.Name() != "node-1" || m.Check() != nil || m.Lease() != i.Lease || m.Key() != i.Key {
			t.Errorf("%s, %s, %v, lease %x, key %s", m.Group(), m.Name(), m.Check(), m.Lease(), m.Key())
		}
		if err := m.Update(ctx, "\xff"); err != nil {
			t.Error(err)
		}
		expect(t, "updated", group(t, srv), "node-1=\xff")
		if err := m.Retire(ctx); err != nil {
			t.Error(err)
		}
		if err := m.Update(ctx, "late"); err != nil {
			t.Error(err)
		}
		expect(t, "retiring for good", group(t, srv), "node-1=late, retiring")
		for range 2 {
			if err := m.Leave(ctx); err != nil {
				t.Error(err)
			}
		}
		expect(t, "left", group(t, srv))
		for what, err := range map[string]error{
			"Check": m.Check(), "Update": m.Update(ctx, ""), "Retire": m.Retire(ctx),
		} {
			if !errors.Is(err, holdfast.ErrReleased) {
				t.Errorf("%s after Leave: %v", what, err)
			}
		}
	})
}

func TestMemberComesBackUnderTheNextLease(t *testing.T) {
	for name, lose := range map[string]func(srv *etcdfake.Server, p *kit.Process){
		"revoked": func(srv *etcdfake.Server, p *kit.Process) { srv.Revoke(p.Sess.Lease()) },
		"cut off": func(_ *etcdfake.Server, p *kit.Process) {
			p.Link.Cut()
			time.Sleep(2 * kit.TTL)
			p.Heal()
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := kit.Start(t, srv)
				m := join(t, p, member.Options{Name: "a", Value: "1"})
				if err := errors.Join(m.Update(t.Context(), "2"), m.Retire(t.Context())); err != nil {
					t.Fatal(err)
				}
				first := p.Sess.Lease()
				lose(srv, p)
				time.Sleep(kit.TTL)
				if kvs := srv.Keys(keys); len(kvs) != 1 || kvs[0].Lease == int64(first) || kvs[0].Lease != int64(p.Sess.Lease()) {
					t.Errorf("keys %v", kvs)
				}
				expect(t, "afterwards", group(t, srv), "a=2, retiring")
				if err := errors.Join(m.Check(), m.Leave(t.Context())); err != nil {
					t.Error(err)
				}
				expect(t, "left", group(t, srv))
			})
		})
	}
}

func TestCheckSaysWhatBecameOfTheLease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		m := join(t, p, member.Options{})
		p.Link.Cut()
		time.Sleep(kit.Trust/2 + p.Renewal)
		if err := m.Check(); !errors.Is(err, holdfast.ErrSuspended) {
			t.Errorf("cut off: %v", err)
		}
		time.Sleep(kit.TTL)
		if err := m.Check(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("after the TTL: %v", err)
		}
		p.Heal()
		time.Sleep(kit.TTL)
		if err := m.Check(); err != nil {
			t.Errorf("healed: %v", err)
		}
		if err := p.Sess.Close(kit.Within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		if err := m.Check(); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		if err := m.Update(t.Context(), "x"); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Update after Close: %v", err)
		}
		if err := m.Leave(t.Context()); err != nil {
			t.Errorf("Leave after Close: %v", err)
		}
		if _, err := member.Join(t.Context(), p.Sess, "workers", member.Options{}); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Join after Close: %v", err)
		}
		expect(t, "closed", group(t, srv))
	})
}

// Leave comes before what was to be put could be.
func TestUpdateThatLeaveOvertakesIsNotConfirmed(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		m := join(t, p, member.Options{Value: "1"})
		p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate { return etcdfake.Fate{LoseRequest: writes(c)} })
		updated := make(chan error, 1)
		go func() { updated <- m.Update(context.Background(), "2") }() // received below
		time.Sleep(time.Second)
		left := make(chan error, 1)
		go func() { left <- m.Leave(context.Background()) }() // received below
		synctest.Wait()
		p.Link.Plan(nil)
		if err := <-updated; !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("Update of what was never put: %v", err)
		}
		if err := <-left; err != nil {
			t.Error(err)
		}
	})
}

// Its key still stands, and the session tries to remove it.
func TestNothingIsChangedAfterLeave(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		m := join(t, p, member.Options{Name: "a"})
		p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate { return etcdfake.Fate{LoseRequest: writes(c), Silent: true} })
		_ = m.Leave(kit.Within(t, time.Second))
		for what, err := range map[string]error{
			"Check": m.Check(), "Update": m.Update(t.Context(), "2"), "Retire": m.Retire(t.Context()),
		} {
			if !errors.Is(err, holdfast.ErrReleased) {
				t.Errorf("%s: %v", what, err)
			}
		}
		expect(t, "meanwhile", group(t, srv), "a=")
		p.Link.Plan(nil)
		time.Sleep(10 * time.Second)
		expect(t, "afterwards", group(t, srv))
	})
}

func TestLargestOptionsAreAccepted(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		join(t, p, member.Options{
			Name: strings.Repeat("x", member.MaxName), Settle: member.MaxSettle, Rejoin: member.MaxRejoin,
			Capacity: member.Capacity{Weight: member.MaxWeight, Zone: strings.Repeat("z", member.MaxZone)},
		})
		join(t, p, member.Options{Name: "b", Rejoin: member.MinRejoin})
		if n := len(group(t, srv)); n != 2 {
			t.Errorf("%d members", n)
		}
	})
}

func TestMembersOfOneNameStandSideBySide(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, q := kit.Start(t, srv), kit.Start(t, srv)
		join(t, p, member.Options{Name: "b", Value: "old"})
		join(t, q, member.Options{Name: "b", Value: "new"})
		join(t, q, member.Options{Name: "a"})
		expect(t, "all", group(t, srv), "a=", "b=old", "b=new")
		srv.Put(keys+"other", "of another program")
		srv.Put("holdfast/member/workers2/@/x", "of another group")
		expect(t, "with others", group(t, srv), "a=", "b=old", "b=new")
	})
}

// A session that has a member sends what one without sends.
func TestMemberAtRestSendsNothing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		with, without := kit.Start(t, srv), kit.Start(t, srv)
		join(t, with, member.Options{})
		count := func(p *kit.Process) map[string]int {
			before := p.Link.Count()
			time.Sleep(10 * time.Minute)
			after := p.Link.Count()
			for method := range after {
				after[method] -= before[method]
			}
			return after
		}
		got := make(chan map[string]int)
		go func() { got <- count(with) }()
		want := count(without)
		if sent := <-got; sent["Txn"] != 0 || sent["Put"] != 0 || sent["Range"] > want["Range"]+1 {
			t.Errorf("sent %v, without a member %v", sent, want)
		}
	})
}

func TestBadInputIsRefusedBeforeAnythingIsSent(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		anonymous := kit.Start(t, srv, func(o *session.Options) { o.Anonymous = true })
		m := join(t, p, member.Options{Value: strings.Repeat("x", member.MaxValue)})
		long := strings.Repeat("x", member.MaxValue+1)
		var noContext context.Context
		before := p.Link.Count()
		for name, c := range map[string]struct {
			argument string
			err      error
		}{
			"no context": {"ctx", joinErr(noContext, p.Sess, "g", member.Options{})},
			"no session": {"sess", joinErr(t.Context(), nil, "g", member.Options{})},
			"a long name": {
				"Options.Name", joinErr(t.Context(), p.Sess, "g", member.Options{Name: long[:member.MaxName+1]}),
			},
			"a name, no UTF-8": {"Options.Name", joinErr(t.Context(), p.Sess, "g", member.Options{Name: "\xff"})},
			"no name":          {"Options.Name", joinErr(t.Context(), anonymous.Sess, "g", member.Options{})},
			"a long value":     {"Options.Value", joinErr(t.Context(), p.Sess, "g", member.Options{Value: long})},
			"settles before":   {"Options.Settle", joinErr(t.Context(), p.Sess, "g", member.Options{Settle: -1})},
			"settles never": {"Options.Settle", joinErr(t.Context(), p.Sess, "g",
				member.Options{Settle: member.MaxSettle + 1})},
			"a long zone": {"Options.Capacity.Zone", joinErr(t.Context(), p.Sess, "g",
				member.Options{Capacity: member.Capacity{Zone: long[:member.MaxZone+1]}})},
			"a long update":        {"value", m.Update(t.Context(), long)},
			"no context of Update": {"ctx", m.Update(noContext, "")},
			"no context of Leave":  {"ctx", m.Leave(noContext)},
		} {
			var bad *holdfast.ArgumentError
			if !errors.As(c.err, &bad) || bad.Argument != c.argument {
				t.Errorf("%s: %v", name, c.err)
			}
		}
		var bad *holdfast.NameError
		if err := joinErr(t.Context(), p.Sess, "a//b", member.Options{}); !errors.As(err, &bad) || bad.Kind != "group" {
			t.Errorf("a bad group: %v", err)
		}
		synctest.Wait()
		if after := p.Link.Count(); !maps.Equal(before, after) {
			t.Errorf("sent %v, before %v", after, before)
		}
	})
}

func joinErr(ctx context.Context, sess *session.Session, group string, o member.Options) error {
	_, err := member.Join(ctx, sess, group, o)
	return err
}
