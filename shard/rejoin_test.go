package shard_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/shard"
)

const rejoin = 30 * time.Second

func withRejoin(o *shard.Options) { o.Rejoin = rejoin }

// owners returns who owns which shard.
func (f *fleet) owners() map[int]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.owner)
}

// gone forgets what a process owned that has died: it says no more that its functions have returned.
func (f *fleet) gone(name string) (shards int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for index, owner := range f.owner {
		if owner == name {
			delete(f.owner, index)
			shards++
		}
	}
	return shards
}

// Two at a time are stopped, by a signal or for good, and come back within Rejoin. No function of another is called.
func TestRestartWithinRejoinMovesNoShard(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		n, m := size()
		f := newFleet(t, srv, n)
		all := startAll(f, m, 0, withRejoin)
		owners, calls := f.owners(), f.calls()
		if len(owners) != n {
			t.Fatalf("%d of %d shards are owned", len(owners), n)
		}
		for i := 0; i+1 < len(all); i += 2 {
			leaves, dies := all[i], all[i+1]
			dies.Link.BlackHole()
			leaves.stop()
			f.gone(dies.name)
			time.Sleep(kit.TTL + kit.LockDelay + settled)
			f.start(leaves.name, 0, withRejoin)
			time.Sleep(time.Second) // one of them is there, the other is not
			f.start(dies.name, 0, withRejoin)
			time.Sleep(settled)
		}
		if !maps.Equal(f.owners(), owners) || f.calls() != calls+n {
			t.Errorf("%d calls for %d shards; owners %v, before %v", f.calls()-calls, n, f.owners(), owners)
		}
	})
}

// A rolling restart as in TestRollingRestart. Each shard has no owner while its process is restarted.
func TestRollingRestartWithRejoin(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		n, m := size()
		f := newFleet(t, srv, n)
		all := startAll(f, m, 0, withRejoin)
		owners, calls := f.owners(), f.calls()
		const restart = 10 * time.Second
		for _, r := range all {
			r.stop()
			time.Sleep(restart)
			f.start(r.name, 0, withRejoin)
			time.Sleep(settled)
		}
		t.Logf("%d shards, %d members: %d calls, at most %v without an owner", n, m, f.calls()-calls, f.longest)
		if !maps.Equal(f.owners(), owners) || f.calls() != calls+n {
			t.Errorf("%d calls for %d shards; owners %v, before %v", f.calls()-calls, n, f.owners(), owners)
		}
		if f.longest > restart+300*time.Millisecond {
			t.Errorf("a shard had no owner for %v", f.longest)
		}
	})
}

func TestOthersTakeTheShardsOfOneThatDoesNotRejoin(t *testing.T) {
	for _, died := range []bool{false, true} {
		t.Run(fmt.Sprintf("died %v", died), func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				f := newFleet(t, srv, 8)
				a, b := f.start("a", 0, withRejoin), f.start("b", 0, withRejoin)
				time.Sleep(settled)
				f.even("before", "a", "b")
				least, most := rejoin-settled, rejoin+2*time.Second
				if died {
					a.Link.BlackHole()
					f.gone("a")
					most = kit.TTL + kit.LockDelay + rejoin + rejoin/2 + 2*time.Second
				} else {
					a.stop()
				}
				began := time.Now()
				f.start("c", 0, withRejoin) // who has not seen the one that has gone counts it, too
				time.Sleep(least)
				owners := f.owners()
				if len(owners) >= f.n || len(owners) < f.n/2 {
					t.Errorf("within Rejoin: %v", owners)
				}
				for f.owned() < f.n {
					if time.Since(began) > most {
						t.Fatalf("after %v: %v", most, f.owners())
					}
					time.Sleep(100 * time.Millisecond)
				}
				time.Sleep(settled)
				f.even("afterwards", "b", "c")
				b.stop()
			})
		})
	}
}

func TestNothingIsLeftAfterRejoin(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 4)
		a := f.start("a", 0, withRejoin)
		f.start("b", 0, withRejoin).stop()
		time.Sleep(settled)
		a.Link.BlackHole()
		a.leave()
		f.empty()
	})
}

// A shard has the same owner after its lease was revoked, though another member sees that it has gone.
func TestRevokedMemberWithRejoinKeepsItsShards(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 8)
		a := f.start("a", 0, withRejoin)
		f.start("b", 0, withRejoin)
		time.Sleep(settled)
		owners := f.owners()
		srv.Revoke(a.Sess.Lease())
		time.Sleep(kit.TTL + settled)
		if now := f.owners(); !maps.Equal(now, owners) {
			t.Errorf("%v, before %v", now, owners)
		}
	})
}

func TestRejoinNeedsANameThatStays(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		for _, o := range []shard.Options{
			{Rejoin: rejoin}, {Member: "a", Rejoin: -1}, {Member: "a", Rejoin: time.Millisecond},
			{Member: "a", Rejoin: 25 * time.Hour},
		} {
			err := shard.New(p.Sess, "orders", 1).With(o).Run(t.Context(), newFleet(t, srv, 1).work("a", 0))
			var bad *holdfast.ArgumentError
			if !errors.As(err, &bad) || !strings.HasPrefix(bad.Argument, "Options.Rejoin") {
				t.Errorf("%+v: %v", o, err)
			}
		}
	})
}
