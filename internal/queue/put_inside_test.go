package queue

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// Neither the entry that is deleted nor the one that is put counts as ahead, and the epoch is
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
		e := handed.entry
		if want := []string{"delete", "read", "read", "put"}; !slices.Equal(order, want) {
			t.Errorf("the Txn has %v, want %v", order, want)
		}
		if e.wait.ahead != nil || e.wait.position != 0 {
			t.Errorf("ahead %v, %d entries before it, want none", e.wait.ahead, e.wait.position)
		}
	})
}
