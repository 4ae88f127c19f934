package hold

import (
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// etcd counts whole seconds, and a lease of none is not asked for.
func TestOwnLeaseLastsForTheNextWholeSecond(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		var asked int64
		p.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
			if r, ok := c.Request.(*pb.LeaseGrantRequest); ok {
				asked = r.TTL
			}
			return f
		})
		for d, want := range map[time.Duration]int64{0: 1, 1: 1, time.Second: 1, time.Second + 1: 2, 2 * time.Second: 2} {
			if err := new(ownLease).obtain(t.Context(), p.Host.Env, d); err != nil || asked != want {
				t.Errorf("for %v: asked for %d s, want %d: %v", d, asked, want, err)
			}
		}
	})
}
