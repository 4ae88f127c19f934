package queue

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// Neither the entry that is deleted nor the one that is put counts as ahead, nor the claims of both, and the epoch is
// read before the put.
func TestTxnDeletesThenReadsThenPuts(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		g := mustAcquire(t, p.queue("x"))
		next := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		synctest.Wait()
		var order []string
		p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			if kit.KindOf(c) != "hand-off" {
				return etcdfake.Fate{}
			}
			for _, op := range c.Request.(*pb.TxnRequest).Success {
				switch {
				case op.GetRequestDeleteRange() != nil:
					order = append(order, "delete")
				case op.GetRequestRange() != nil:
					order = append(order, "read")
				case op.GetRequestPut() != nil:
					order = append(order, "put")
				}
			}
			return etcdfake.Fate{}
		})
		mustHandOff(t, g)
		handed := <-next
		if handed == nil {
			t.Fatal("not granted")
		}
		e := handed
		if want := []string{"delete", "delete", "read", "read", "put", "put"}; !slices.Equal(order, want) {
			t.Errorf("the Txn has %v, want %v", order, want)
		}
		if e.ahead != nil || e.position != 0 {
			t.Errorf("ahead %v, %d entries before it, want none", e.ahead, e.position)
		}
	})
}

// A put is refused, although no copy that the session knows of was carried out, and nothing stands at its key. So there
// are copies that it does not know of, and one may arrive yet.
func TestRefusalByACopyThatIsNotKnownCountsAsUnanswered(t *testing.T) {
	for name, queue := range map[string]func(*process) *Queue{
		"lock":   func(p *process) *Queue { return p.queue("x") },
		"permit": func(p *process) *Queue { return p.permits(1, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				q := queue(p)
				mustHandOff(t, mustAcquire(t, q)) // that of a permit puts the limit
				a := newAttempt(Set{q}.join(Request{}), p.Host.Lease())
				gate := a.lease.Gate()
				err := a.whyRefused(t.Context(), gate, math.MaxInt64)
				if err != ErrEntryGone || a.unansweredAt != gate {
					t.Errorf("%v; the unanswered copy was sent at gate %d, want %d", err, a.unansweredAt, gate)
				}
				giveUp([]*caller{a.entries[0].caller}, a)
			})
		})
	}
}
