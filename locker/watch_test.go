package locker_test

import (
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
)

// Scenarios 34 and 35, in virtual time. Whatever becomes of a waiter's watch,
// the predecessor leaves while it is down, and the waiter acquires all the same:
// soon after, and without asking over and over in the meantime.
func TestWaiterWhoseWatchFailsMissesNoRelease(t *testing.T) {
	const down = 5 * time.Second // less than would suspend the waiter
	for name, c := range map[string]struct {
		fail, mend func(srv *etcdfake.Server, waiter *process)
		within     time.Duration // of the mending
	}{
		"the history is compacted while it is disconnected": {
			fail: func(_ *etcdfake.Server, p *process) { p.link.Cut() },
			mend: func(srv *etcdfake.Server, p *process) {
				for range 10 {
					srv.Put("other", "") // or what it has seen last is the last there is
				}
				srv.Compact()
				p.heal()
			},
			within: 2 * time.Second,
		},
		"it is cancelled again and again": {
			fail: func(srv *etcdfake.Server, _ *process) {
				for range down / (10 * time.Millisecond) {
					srv.CancelWatches(rpctypes.ErrNoLeader)
					time.Sleep(10 * time.Millisecond)
				}
			},
			mend:   func(*etcdfake.Server, *process) {},
			within: 2 * time.Second,
		},
		"there is no leader": {
			fail:   func(srv *etcdfake.Server, _ *process) { srv.LoseLeader() },
			mend:   func(srv *etcdfake.Server, _ *process) { srv.ChangeLeader(0) },
			within: 6 * time.Second, // a request that is under way is given up after 4 s
		},
		"its events are late": {
			fail: func(_ *etcdfake.Server, p *process) {
				p.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
					if c.Method == "Watch" && c.Request == nil {
						return etcdfake.Fate{Reply: time.Second}
					}
					return etcdfake.Fate{}
				})
			},
			mend:   func(*etcdfake.Server, *process) {},
			within: time.Second + 6*oneWay,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				a, b := start(t, srv), start(t, srv)
				lk := mustLock(t, locker.NewMutex(a.sess, "x"))
				waiter := lockLater(t.Context(), locker.NewMutex(b.sess, "x"))
				queued(t, srv, "x", 2)
				entry := string(standing(srv, "x")[1].Key)
				begin, before := time.Now(), b.link.Count()
				c.fail(srv, b)
				time.Sleep(time.Until(begin.Add(down)))
				srv.Delete(lk.Key())
				c.mend(srv, b)
				mended := time.Now()
				r := <-waiter
				if r.err != nil {
					t.Fatal(r.err)
				}
				if took := time.Since(mended); took > c.within {
					t.Errorf("acquired %v after all was well again", took)
				}
				if r.lk.Check() != nil || !owns(srv, r.lk) || r.lk.Key() != entry {
					t.Errorf("Check %v, entries %v, its own was %s", r.lk.Check(), standing(srv, "x"), entry)
				}
				after := b.link.Count()
				// The session watches its own key as well. Without a leader etcd's
				// client repeats each read every 25 ms by itself, and a read that is
				// not answered is sent again beside that.
				if watches, reads := after["Watch"]-before["Watch"], after["Range"]-before["Range"]; watches > 60 || reads > 700 {
					t.Errorf("%d watches and %d reads in %v: it spins", watches, reads, down)
				}
			})
		})
	}
}
