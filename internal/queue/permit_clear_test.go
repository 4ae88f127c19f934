package queue

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// A copy of a clear arrives when the claim of a later permit stands at the key, and the permit of its attempt yet.
func TestLateClearSparesTheClaimOfALaterPermit(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		kit.SetLimit(t, srv, 1)
		p := start(t, srv)
		former := kit.JoinPermit(t, srv, permitsX, 1)
		former.Revoke()
		p.PlanOne("clear", etcdfake.Fate{Request: 10 * time.Second})
		g := mustAcquire(t, p.permits(1, 1))
		srv.Put(former.Claim, "of another permit")
		time.Sleep(20 * time.Second)
		if n := p.Counts()["clear"]; n < 2 || len(srv.Keys(former.Claim)) != 1 {
			t.Errorf("%d copies; the later claim: %v", n, srv.Keys(former.Claim))
		}
		srv.Delete(former.Claim)
		mustHandOff(t, g)
	})
}
