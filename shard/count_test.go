package shard_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/shard"
)

func TestAnotherCountIsRefused(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		nothing := func(context.Context, *shard.Shard) error { return nil }
		newFleet(t, srv, 4).start("a", 0)
		time.Sleep(settled)
		err := shard.New(p.Sess, "orders", 5).Run(kit.Within(t, time.Minute), nothing)
		var other *shard.CountError
		if !errors.As(err, &other) || other.Count != 4 || other.Named != 5 || other.Name != "orders" || other.Key != count ||
			!strings.HasPrefix(err.Error(), `run shards "orders": `) || !strings.Contains(err.Error(), "4 shards") ||
			!strings.Contains(err.Error(), "names 5") {
			t.Errorf("%v", err)
		}
		srv.Put(count, "1")
		err = shard.New(p.Sess, "orders", 4).Run(kit.Within(t, time.Minute), nothing)
		if !errors.As(err, &other) || other.Count != 1 {
			t.Errorf("%v", err)
		}
		for _, number := range []string{"many", "0", "-1", "04"} { // the put of an entry compares the text
			srv.Put(count, number)
			if err := shard.New(p.Sess, "orders", 4).Run(kit.Within(t, time.Minute), nothing); err == nil ||
				!strings.Contains(err.Error(), fmt.Sprintf("%q: put \"4\" there", number)) {
				t.Errorf("%v", err)
			}
		}
		// With Rejoin a member that has joined would be left shards for so long.
		if changes := srv.History(members); len(changes) != 1 {
			t.Errorf("others have joined: %v", changes)
		}
	})
}

// The count is put once, whatever message is lost.
func TestCountIsPutThoughTheReplyIsLost(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		p.PlanOne("enqueue", etcdfake.Fate{LoseReply: true, Silent: true})
		f := newFleet(t, srv, 4)
		f.startWith(p, "a", f.work("a", 0))
		time.Sleep(2 * settled)
		f.even("afterwards", "a")
		if h := srv.History(count); len(h) != 1 {
			t.Errorf("history of the count: %v", h)
		}
	})
}
