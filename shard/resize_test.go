package shard_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/shard"
)

// number is what etcd has.
func number(srv *etcdfake.Server) string {
	for _, kv := range srv.Keys(entries) {
		if string(kv.Key) == count {
			return string(kv.Value)
		}
	}
	return ""
}

func TestNumberIsChangedWhileNoMemberRuns(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		adm := admin.New(srv.Client(t), admin.Options{})
		if _, err := adm.ResizeShards(t.Context(), "orders", 8); !errors.Is(err, admin.ErrNoShards) {
			t.Errorf("before the first Run: %v", err)
		}
		f := newFleet(t, srv, 4)
		a, b := f.start("a", 0, withRejoin), f.start("b", 0)
		time.Sleep(settled)
		_, err := adm.ResizeShards(t.Context(), "orders", 8)
		var running *admin.MembersError
		if !errors.As(err, &running) || !slices.Equal(running.Members, []string{"a", "b"}) ||
			!strings.Contains(err.Error(), `"a" "b"`) {
			t.Errorf("while members run: %v", err)
		}
		if before, err := adm.ResizeShards(t.Context(), "orders", 4); err != nil || before != 4 {
			t.Errorf("to the same number: %d, %v", before, err)
		}
		b.stop()
		a.stop() // absent from now on
		for range 2 {
			if before, err := adm.ResizeShards(t.Context(), "orders", 8); err != nil || before != 4 && before != 8 {
				t.Errorf("afterwards: %d, %v", before, err)
			}
		}
		err = shard.New(a.Sess, "orders", 4).Run(t.Context(), f.work("a", 0))
		var other *shard.CountError
		if !errors.As(err, &other) || other.Count != 8 || !strings.Contains(err.Error(), "holdfast shards resize") {
			t.Errorf("with the old number: %v", err)
		}
		f = newFleet(t, srv, 8)
		f.start("c", 0)
		time.Sleep(rejoin + settled)
		f.even("with the new number", "c")
	})
}

// Its key was deleted by hand, and it puts it again; but its shards stand.
func TestNumberIsNotChangedWhileAShardIsOwned(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 4)
		a := f.start("a", 0)
		time.Sleep(settled)
		a.Link.Cut()
		srv.Delete(string(srv.Keys(members)[0].Key))
		_, err := admin.New(srv.Client(t), admin.Options{}).ResizeShards(t.Context(), "orders", 8)
		var running *admin.MembersError
		if !errors.As(err, &running) || len(running.Members) != 0 || len(running.Entries) != 4 ||
			!strings.Contains(err.Error(), "4 shards are owned") {
			t.Errorf("%v", err)
		}
	})
}

// A member joins, or the same is asked for, between the read and the write; or a reply is lost.
func TestResizeComparesWhatItHasRead(t *testing.T) {
	for name, meanwhile := range map[string]func(srv *etcdfake.Server, f *fleet) (ok bool){
		"a member joins":     func(_ *etcdfake.Server, f *fleet) bool { f.start("b", 0); return false },
		"a key of a member":  func(srv *etcdfake.Server, _ *fleet) bool { srv.Put(members+"5eed-X", ""); return false },
		"an entry":           func(srv *etcdfake.Server, _ *fleet) bool { srv.Put(entries+"2/@/x", ""); return false },
		"another name":       func(srv *etcdfake.Server, _ *fleet) bool { srv.Put(entries+"eu/7", ""); return true },
		"another has it so":  func(srv *etcdfake.Server, _ *fleet) bool { srv.Put(count, "8"); return true },
		"the reply is lost":  nil,
		"the number is none": func(srv *etcdfake.Server, _ *fleet) bool { srv.Put(count, "many"); return true },
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				f := newFleet(t, srv, 4)
				a := f.start("a", 0)
				time.Sleep(settled)
				a.stop()
				link := srv.Link()
				txns, began := 0, time.Now()
				var refused atomic.Bool
				link.Plan(func(c etcdfake.Call) (fate etcdfake.Fate) {
					if c.Method != "Txn" || c.Request == nil {
						return fate
					}
					if txns++; txns == 2 && meanwhile == nil {
						fate.LoseReply, fate.Silent = true, true
					} else if txns > 1 && time.Since(began) < 2*time.Second { // all copies of the write
						fate.Request = 3 * time.Second
					}
					return fate
				})
				if meanwhile != nil {
					time.AfterFunc(time.Second, func() { refused.Store(!meanwhile(srv, f)) })
					defer func() {
						if time.Since(began) < 2*time.Second {
							t.Error("the write was not late")
						}
					}()
				}
				before, err := admin.New(link.Client(), admin.Options{}).ResizeShards(kit.Within(t, time.Hour), "orders", 8)
				var running *admin.MembersError
				want := !refused.Load()
				if want && (err != nil || before != 4) || !want && !errors.As(err, &running) {
					t.Errorf("%d, %v", before, err)
				}
				if n := number(srv); want != (n == "8") {
					t.Errorf("there are %s shards", n)
				}
			})
		})
	}
}

// Its lease was revoked, and the event is late: its entries have gone, and it goes on for a moment.
func TestResizeWaitsForAnOwnerThatIsNotToldYet(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 4)
		p := kit.Start(t, srv, func(o *session.Options) { o.StayLost = true })
		a := f.startWith(p, "a", f.work("a", 0))
		time.Sleep(settled)
		p.Link.Plan(func(c etcdfake.Call) (fate etcdfake.Fate) {
			if c.Request == nil {
				fate.Reply = kit.LockDelay / 2
			}
			return fate
		})
		srv.Revoke(p.Sess.Lease())
		if n := f.owned(); n != 4 {
			t.Errorf("%d functions run after the revocation", n)
		}
		if _, err := admin.New(srv.Client(t), admin.Options{}).ResizeShards(t.Context(), "orders", 8); err != nil {
			t.Error(err)
		}
		if n := f.owned(); n != 0 {
			t.Errorf("%d functions run by the old number after the change", n)
		}
		<-a.done
		if !errors.Is(a.err, holdfast.ErrLost) {
			t.Errorf("Run: %v", a.err)
		}
	})
}

// While it had no lease, the number was changed. It calls no function with the old one.
func TestMemberThatComesBackSeesThatTheNumberWasChanged(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 4)
		a := f.start("a", 0)
		time.Sleep(settled)
		calls := f.calls()
		a.Link.Cut()
		time.Sleep(kit.TTL + settled)
		if _, err := admin.New(srv.Client(t), admin.Options{}).ResizeShards(t.Context(), "orders", 8); err != nil {
			t.Fatal(err)
		}
		a.Heal()
		<-a.done
		var other *shard.CountError
		if !errors.As(a.err, &other) || other.Count != 8 || f.calls() != calls {
			t.Errorf("%d functions were called; Run: %v", f.calls()-calls, a.err)
		}
		f.n = 8 // for empty
		f.empty()
	})
}

func TestResizeRefusesBadInput(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		adm := admin.New(srv.Client(t), admin.Options{})
		for _, n := range []int{-1, 0, shard.MaxCount + 1} {
			_, err := adm.ResizeShards(t.Context(), "orders", n)
			var bad *holdfast.ArgumentError
			if !errors.As(err, &bad) || bad.Argument != "n" {
				t.Errorf("%d: %v", n, err)
			}
		}
		var bad *holdfast.NameError
		if _, err := adm.ResizeShards(context.Background(), "a//b", 1); !errors.As(err, &bad) {
			t.Errorf("%v", err)
		}
	})
}

// Of one shard it has none, and of 64 it would leave those without an owner that the others leave to it. The watch may
// tell it of its new key before the reply to the put does.
func TestMemberWithoutAShardSeesThatTheNumberWasChanged(t *testing.T) {
	for name, late := range map[string]time.Duration{"reply first": 0, "event first": time.Second} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) { resizeBeside(t, srv, late) })
		})
	}
}

func resizeBeside(t *testing.T, srv *etcdfake.Server, late time.Duration) {
	f := newFleet(t, srv, 1)
	both := map[string]*running{"a": f.start("a", 0), "b": f.start("b", 0)}
	time.Sleep(settled)
	f.mu.Lock()
	owner := f.owner[0]
	f.mu.Unlock()
	for name, r := range both {
		if name != owner {
			r.PlanAll("enqueue", etcdfake.Fate{Reply: late}) // of the member's key
			r.Link.Cut()                                     // and comes back as the first member, of the old number
		}
	}
	time.Sleep(kit.TTL + settled)
	both[owner].stop()
	if _, err := admin.New(srv.Client(t), admin.Options{}).ResizeShards(t.Context(), "orders", 64); err != nil {
		t.Fatal(err)
	}
	f = newFleet(t, srv, 64)
	f.start(owner, 0)
	time.Sleep(settled)
	delete(both, owner)
	for name, r := range both {
		r.Heal()
		select {
		case <-r.done:
		case <-time.After(10 * time.Minute):
			t.Fatalf("%s goes on with the old number", name)
		}
		var other *shard.CountError
		if !errors.As(r.err, &other) || other.Count != 64 {
			t.Errorf("%s: %v", name, r.err)
		}
	}
	time.Sleep(settled)
	f.even("afterwards", owner)
}

// It is drained, so its key alone refuses a resize. An operator takes it for dead, and deletes that key.
func TestMemberWhoseKeyWasDeletedSeesThatTheNumberWasChanged(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 8)
		a := f.start("a", 0)
		time.Sleep(settled)
		adm := admin.New(srv.Client(t), admin.Options{})
		if err := adm.DrainMember(t.Context(), "orders", "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(settled)
		a.Link.Cut()
		srv.Delete(string(srv.Keys(members)[0].Key))
		if _, err := adm.ResizeShards(t.Context(), "orders", 64); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		lease := a.Sess.Lease()
		a.Heal()
		time.Sleep(settled)
		if now := a.Sess.Lease(); now != lease {
			t.Errorf("lease %x was lost, and is %x: this tests nothing", lease, now)
		}
		select {
		case <-a.done:
		default:
			t.Fatal("it goes on with the old number")
		}
		var other *shard.CountError
		if !errors.As(a.err, &other) || other.Count != 64 {
			t.Errorf("Run: %v", a.err)
		}
	})
}

// Its function has returned, and it pauses: no entry stands. Its key is deleted by hand, and the events are late. So it
// acquires the shard before it hears that the key has gone.
func TestMemberThatPausesSeesThatTheNumberWasChanged(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 1)
		p := kit.Start(t, srv)
		var calls atomic.Int64
		a := f.startWith(p, "a", func(context.Context, *shard.Shard) error { calls.Add(1); return nil })
		for calls.Load() < 10 { // by then it pauses for long
			time.Sleep(time.Millisecond)
		}
		for len(srv.Keys(entries)) != 1 { // the number of shards
			time.Sleep(time.Millisecond)
		}
		p.Link.Plan(func(c etcdfake.Call) (fate etcdfake.Fate) {
			if c.Request == nil {
				fate.Reply = 10 * time.Minute
			}
			return fate
		})
		before := calls.Load()
		srv.Delete(string(srv.Keys(members)[0].Key))
		if _, err := admin.New(srv.Client(t), admin.Options{}).ResizeShards(t.Context(), "orders", 64); err != nil {
			t.Fatal(err)
		}
		select {
		case <-a.done:
		case <-time.After(5 * time.Minute):
			t.Error("it goes on with the old number")
		}
		var other *shard.CountError
		if n := calls.Load() - before; n != 0 || !errors.As(a.err, &other) || other.Count != 64 {
			t.Errorf("%d functions were called with the old number; Run: %v", n, a.err)
		}
	})
}
