package shard_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/fencing/memfence"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/shard"
)

// claims runs one member of n shards until each has presented its claim, and returns them by index: those of stale
// owners, when another member has come after.
func claims(t *testing.T, srv *etcdfake.Server, n int) []fencing.Claim {
	f := newFleet(t, srv, n)
	all := make([]fencing.Claim, n)
	var presented sync.WaitGroup
	presented.Add(n)
	adm := admin.New(srv.Client(t), admin.Options{})
	if _, err := adm.ResizeShards(t.Context(), "orders", n); err != nil && !errors.Is(err, admin.ErrNoShards) {
		t.Fatal(err)
	}
	p := f.startWith(kit.Start(t, srv), "a", func(ctx context.Context, s *shard.Shard) error {
		c, err := fencing.Present(s)
		if err != nil {
			t.Error(err)
		}
		all[s.Index()] = c
		presented.Done()
		<-ctx.Done()
		return nil
	})
	presented.Wait()
	p.stop()
	return all
}

// The mark of a tenant is kept, whatever shard the tenant is in.
func TestStaleOwnersAreRefusedAfterAResizeAndGoodWritesPass(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		marks, err := etcdfence.NewMarks(srv.Client(t), etcdfence.MarksOptions{})
		if err != nil {
			t.Fatal(err)
		}
		memory := memfence.New(memfence.Options{})
		guards := map[string]func(tenant string, c fencing.Claim) error{
			"memory": func(tenant string, c fencing.Claim) error { return memory.Admit(t.Context(), tenant, c) },
			"etcd": func(tenant string, c fencing.Claim) error {
				_, err := marks.Commit(t.Context(), tenant, c)
				return err
			},
		}
		write := func(all []fencing.Claim, want error) {
			for i := range 32 {
				tenant := fmt.Sprint("tenant ", i)
				for name, guard := range guards {
					if err := guard(tenant, all[shard.Of(tenant, len(all))]); !errors.Is(err, want) {
						t.Errorf("%s: %s, one of %d shards: %v, want %v", name, tenant, len(all), err, want)
					}
				}
			}
		}
		var stale [][]fencing.Claim
		for _, n := range []int{4, 8, 3} {
			now := claims(t, srv, n)
			write(now, nil)
			for _, all := range stale {
				write(all, fencing.ErrStale)
			}
			write(now, nil)
			stale = append(stale, now)
		}
	})
}

// What docs/shards.md warns of: where the resource is the shard, the new owner of a tenant raises the mark of another
// resource. A process that raises the marks of all old shards closes the gap.
func TestMarkOfAShardItselfDoesNotSeeAResize(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		guard := memfence.New(memfence.Options{})
		admit := func(index int, c fencing.Claim) error {
			return guard.Admit(t.Context(), fmt.Sprint("orders/", index), c)
		}
		old, now := claims(t, srv, 4), claims(t, srv, 8)
		const tenant = "tenant 1"
		before, after := shard.Of(tenant, 4), shard.Of(tenant, 8)
		if before == after {
			t.Fatal("the tenant stays where it is")
		}
		for i, c := range now[4:] { // of the shards that there were not before
			if err := admit(4+i, c); err != nil {
				t.Error(err)
			}
		}
		if err := admit(before, old[before]); err != nil {
			t.Errorf("the stale owner is refused, so docs/shards.md warns for nothing: %v", err)
		}
		for i := range old {
			if err := admit(i, now[after]); err != nil {
				t.Error(err)
			}
		}
		if err := admit(before, old[before]); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("after all marks were raised: %v", err)
		}
	})
}
