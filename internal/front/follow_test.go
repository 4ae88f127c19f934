package front

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/requests"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// followed is what a call of Follow has told.
type followed struct {
	fronts chan Front
	done   chan error
	ended  func()
}

func follow(t *testing.T, r *Monitor, every time.Duration) *followed {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &followed{fronts: make(chan Front, 10_000), done: make(chan error, 1), ended: cancel}
	go func() { f.done <- r.Follow(ctx, every, func(now Front) { f.fronts <- now }) }()
	t.Cleanup(func() {
		cancel()
		<-f.done
	})
	return f
}

// told returns the fronts of a while, each that differs from the one before.
func (f *followed) told(d time.Duration) (all []Front) {
	time.Sleep(d)
	for len(f.fronts) > 0 {
		if now := <-f.fronts; len(all) == 0 || !now.same(all[len(all)-1]) {
			all = append(all, now)
		}
	}
	return all
}

func (f *followed) expect(t *testing.T, what string, want ...int64) {
	t.Helper()
	var got []int64
	for _, now := range f.told(kit.Prompt) {
		if now.Entry == nil {
			got = append(got, 0)
		} else {
			got = append(got, now.Entry.ModRevision)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: told %v, want %v", what, got, want)
	}
}

func TestFollowTellsEachChangeOfTheFrontOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		f := follow(t, reader(t, p), time.Hour)
		revision := func(key string) int64 {
			history := srv.History(key)
			return history[len(history)-1].Revision
		}
		f.expect(t, "the empty queue", 0)
		srv.Put(kit.Entries("x")+"b", "1")
		first := revision(kit.Entries("x") + "b")
		f.expect(t, "the first entry", first)

		p.Plan(nil)
		srv.Put(kit.Entries("x")+"b", "2")
		f.expect(t, "its new value", revision(kit.Entries("x")+"b"))
		srv.Put(kit.Entries("x")+"a", "waits")
		srv.Put(kit.Entries("x")+"a", "waits, and says so")
		srv.Delete(kit.Entries("x") + "a")
		srv.Put(kit.Entries("x")+"a", "again")
		second := revision(kit.Entries("x") + "a")
		f.expect(t, "entries behind the front")
		if n := p.Counts()["read"]; n != 0 {
			t.Errorf("%d reads for events that say all", n)
		}
		srv.Delete(kit.Entries("x") + "b")
		f.expect(t, "the next entry", second)
		srv.Delete(kit.Entries("x") + "a")
		f.expect(t, "the empty queue again", 0)
		if n := p.Counts()["read"]; n != 2 {
			t.Errorf("%d reads, want one for each entry that went", n)
		}
	})
}

func TestFollowKeepsItsWatchAndReadsOnceInEvery(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		p.Plan(nil)
		f := follow(t, reader(t, p), time.Minute)
		time.Sleep(time.Hour + 30*time.Second)
		counts := p.Counts()
		if counts["watch"] != 1 || counts["read"] != 61 {
			t.Errorf("in an hour: %v, want 1 watch and 61 reads", counts)
		}
		if n := len(f.fronts); n != 61 {
			t.Errorf("told %d times, want 61", n)
		}
	})
}

// A watch may be silent for good: its connection is dead, or its member hangs.
func TestFollowReplacesAWatchThatIsBehindAReadOnAnotherStream(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		r := reader(t, p)
		f := follow(t, r, time.Minute)
		f.expect(t, "the empty queue", 0)
		before, _ := r.streams.Pick()
		p.Plan(func(kind string, _ int) etcdfake.Fate {
			if kind == "event" {
				return etcdfake.Fate{Reply: 24 * time.Hour}
			}
			return etcdfake.Fate{}
		})
		srv.Put(kit.Entries("x")+"a", "1")
		f.expect(t, "a change that no watch has told")
		time.Sleep(time.Minute)
		f.expect(t, "the read", srv.Keys(kit.Entries("x"))[0].ModRevision)
		if now, _ := r.streams.Pick(); p.Counts()["watch"] != 1 || now == before {
			t.Errorf("%v, on another stream %v; want another watch on another stream", p.Counts(), now != before)
		}
		p.Plan(nil)
		time.Sleep(5 * time.Minute)
		if p.Counts()["watch"] != 0 {
			t.Errorf("%v: a watch that is not behind was replaced", p.Counts())
		}
	})
}

func TestFollowEndsIfItMayNotRead(t *testing.T) {
	for name, refuse := range map[string]int{"the first read": 1, "a regular read": 2} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := kit.Start(t, srv)
				reads := 0
				p.KV.Refuse(func(ops []clientv3.Op) error {
					if !ops[0].IsGet() {
						return nil
					}
					if reads++; reads == refuse {
						return rpctypes.ErrPermissionDenied
					}
					return nil
				})
				began := time.Now()
				err := reader(t, p).Follow(t.Context(), time.Minute, func(Front) {})
				if took := time.Since(began); !errors.Is(err, rpctypes.ErrPermissionDenied) ||
					took > time.Duration(refuse-1)*time.Minute+kit.Prompt {
					t.Errorf("ended with %v after %v", err, took)
				}
			})
		})
	}
}

// A put between the creation of the watch and the read is told by both, and counts once.
func TestFollowTellsOnceWhatBothItsReadAndItsWatchHaveSeen(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		p.PlanOne("read", etcdfake.Fate{Request: 20 * kit.OneWay})
		f := follow(t, reader(t, p), time.Hour)
		time.Sleep(10 * kit.OneWay)
		srv.Put(kit.Entries("x")+"a", "1")
		time.Sleep(time.Second)
		if n := p.Counts(); len(f.fronts) != 1 || n["watch"] != 1 || n["event"] == 0 {
			t.Errorf("told %d times, sent %v", len(f.fronts), n)
		}
	})
}

// The member hangs on which the watch is to be created. What is read meanwhile is told, and the next watch is on
// another stream.
func TestFollowCreatesItsWatchOnAnotherStreamIfOneHangs(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		r := reader(t, p)
		p.PlanOne("watch", etcdfake.Fate{LoseRequest: true, Silent: true})
		f := follow(t, r, time.Hour)
		time.Sleep(time.Second)
		before, _ := r.streams.Pick()
		time.Sleep(requests.Patience)
		if now, _ := r.streams.Pick(); p.Counts()["watch"] != 2 || now == before {
			t.Errorf("%d watches, on the same stream: %v", p.Counts()["watch"], now == before)
		}
		f.expect(t, "the empty queue", 0)
		srv.Put(kit.Entries("x")+"a", "1")
		f.expect(t, "the first entry", srv.Keys(kit.Entries("x"))[0].ModRevision)
	})
}

// A watch that ends right after it began is made again after a pause, with one read.
func TestFollowPausesAfterAWatchThatEndsAtOnce(t *testing.T) {
	const healthy = time.Second // the age from which a watch is made again without a pause
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		follow(t, reader(t, p), time.Hour)
		time.Sleep(healthy / 2)
		p.Plan(nil)
		srv.CancelWatches(rpctypes.ErrNoLeader)
		time.Sleep(3 * healthy)
		if n := p.Counts(); n["watch"] != 1 || n["read"] != 1 {
			t.Errorf("sent %v, want one watch and one read", n)
		}
	})
}
