package queue

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// A copy of a clear arrives when another claim stands at the key, and the entry of its attempt yet. It compares the
// create revision of the claim.
func TestLateClearSparesALaterClaimAtTheKey(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		former := kit.Join(t, srv, entriesX)
		former.Revoke()
		p.PlanOne("clear", etcdfake.Fate{Request: 10 * time.Second})
		g := mustAcquire(t, p.queue("x"))
		srv.Put(former.Claim, "of another entry")
		time.Sleep(20 * time.Second)
		if n := p.Counts()["clear"]; n < 2 || len(srv.Keys(former.Claim)) != 1 {
			t.Errorf("%d copies; the later claim: %v", n, srv.Keys(former.Claim))
		}
		srv.Delete(former.Claim)
		mustHandOff(t, g)
	})
}
