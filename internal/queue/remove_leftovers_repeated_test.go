package queue_test

import (
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// The client of a program that has replaced its KV has sent a put twice, unnoticed: the second copy was answered, and
// the first comes after the release.
func TestLateCopyOfAnAnsweredPutLeavesNothing(t *testing.T) {
	for name, queueOf := range map[string]func(p *holdtest.Process) *queue.Queue{
		"at a name": func(p *holdtest.Process) *queue.Queue { return p.Queue("x/y") },
		"of an election": func(p *holdtest.Process) *queue.Queue {
			return queue.New(p.Host, holdfast.KindElection, "x")
		},
		"at a foreign prefix": func(p *holdtest.Process) *queue.Queue { return p.QueueAt("theirs/x") },
		"of a reader":         func(p *holdtest.Process) *queue.Queue { return p.Queue("x").Readers() },
		"of a foreign reader": func(p *holdtest.Process) *queue.Queue { return p.QueueAt("theirs/x").Readers() },
		"of a permit":         func(p *holdtest.Process) *queue.Queue { return p.Permits(1, 1) },
	} {
		for late, does := range map[time.Duration]bool{0: true, kit.Prompt: false} {
			t.Run(name, func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					p := holdtest.StartReplaced(t, srv)
					var put *pb.TxnRequest // written by the link only, which calls under a mutex of its own
					p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
						if kit.KindOf(c) == "enqueue" {
							put = c.Request.(*pb.TxnRequest)
						}
						return etcdfake.Fate{}
					})
					q := queueOf(p)
					holdtest.MustRelease(t, holdtest.MustAcquire(t, q))
					time.Sleep(late)
					r, err := srv.Link().KVClient().Txn(t.Context(), put)
					if err != nil || r.Succeeded != does {
						t.Errorf("%v after the release the copy does something: %v, %v", late, r.GetSucceeded(), err)
					}
					time.Sleep(kit.Prompt)
					kit.NothingStands(t, srv)
					holdtest.MustRelease(t, holdtest.MustAcquire(t, q))
				})
			})
		}
	}
}
