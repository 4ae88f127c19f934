package shard_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/shard"
)

// Owned is what the functions of this process have now: of two members each has its part, and none after a loss.
func TestOwnedIsWhatThisProcessOwnsNow(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 8)
		p := kit.Start(t, srv)
		all := shard.New(p.Sess, "orders", 8).With(shard.Options{Member: "a"})
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { // joined below
			defer close(done)
			_ = all.With(shard.Options{DrainTimeout: time.Minute}).Run(ctx, f.work("a", time.Second))
		}()
		check := func(what string) (owned []int) {
			t.Helper()
			synctest.Wait()
			var want []int
			for index, owner := range f.owners() {
				if owner == "a" {
					want = append(want, index)
				}
			}
			slices.Sort(want)
			for _, s := range all.Owned() {
				owned = append(owned, s.Index())
			}
			if !slices.Equal(owned, want) {
				t.Errorf("%s: %v, want %v", what, owned, want)
			}
			return owned
		}
		if owned := check("before it has settled"); owned != nil {
			t.Error(fmt.Sprint(owned))
		}
		time.Sleep(settled)
		if owned := check("alone"); len(owned) != 8 {
			t.Error(owned)
		}
		b := f.start("b", 0)
		time.Sleep(settled)
		if owned := check("two members"); len(owned) != 4 {
			t.Error(owned)
		}
		b.stop()
		time.Sleep(settled)
		check("alone again")
		p.Link.BlackHole()
		for p.Sess.State() != holdfast.Suspended {
			time.Sleep(100 * time.Millisecond)
		}
		if owned := all.Owned(); len(owned) != 0 {
			t.Errorf("its session is suspended: %v", owned)
		}
		time.Sleep(kit.TTL)
		if owned := all.Owned(); len(owned) != 0 {
			t.Errorf("its lease is lost: %v", owned)
		}
		p.Heal()
		time.Sleep(kit.TTL + settled)
		check("it is back")
		leave()
		<-done
		if owned := check("it has left"); owned != nil {
			t.Error(owned)
		}
		for _, none := range []*shard.Shards{nil, {}} {
			if owned := none.Owned(); owned != nil {
				t.Error(owned)
			}
		}
	})
}
