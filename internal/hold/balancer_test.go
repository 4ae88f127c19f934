package hold_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// One address for all members, as of a load balancer, leads to one of them. docs/client.md says what that costs.
func TestOneAddressForAllMembersLosesWhatOneForEachKeeps(t *testing.T) {
	for name, c := range map[string]struct {
		addresses   int
		watched     bool
		least, most int // requests in a minute at rest
		hangs       holdfast.State
	}{
		"one for each": {3, true, 0, 36, holdfast.Connected},
		"one for all":  {1, false, 75, 100, holdfast.Lost},
	} {
		three(t, func(t *testing.T, srv *etcdfake.Server) {
			link := srv.Link()
			cli := kit.Dial(t, link, srv.Members()[:c.addresses])
			byDefault := func(o *session.Options) { o.LockDelay = 0 }
			p := &holdtest.Process{Process: kit.StartOn(t, link, cli, byDefault)}
			synctest.Wait()
			cli.Watcher = link.Client().Watcher // see StartQuiet
			holdtest.MustAcquire(t, p.Queue("x"))
			time.Sleep(15 * time.Second)
			if watched := p.Host.Lease().Watched(); watched != c.watched {
				t.Errorf("%s: watched on a majority: %v", name, watched)
			}
			all, kinds := requestsIn(p, time.Minute)
			if all < c.least || all > c.most {
				t.Errorf("%s: %d requests in a minute, want %d to %d: %v", name, all, c.least, c.most, kinds)
			}
			srv.Members()[0].Hang() // the others are a quorum
			defer srv.Members()[0].Resume()
			time.Sleep(kit.TTL)
			if state := p.Sess.State(); state != c.hangs {
				t.Errorf("%s: %v while a member hangs, want %v", name, state, c.hangs)
			}
		})
	}
}
