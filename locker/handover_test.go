package locker_test

import (
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
)

// What becomes of the next one's entry after a hand-over was carried out is no
// matter of who has left by it.
func TestUnlockSaysReleasedWhateverBecomesOfTheNextOnesEntry(t *testing.T) {
	for name, spoil := range map[string]func(p *process, srv *etcdfake.Server, name string){
		"its token cannot be made": func(_ *process, srv *etcdfake.Server, _ string) { srv.Put("holdfast/epoch", "no number") },
		"it is deleted before the reply that was lost is asked for again": func(p *process, srv *etcdfake.Server, name string) {
			mine := string(standing(srv, name)[0].Key)
			p.link.LoseReply("Txn", 1, codes.Unavailable)
			go func() { // ends when the hand-over is carried out
				for {
					if kvs := standing(srv, name); len(kvs) == 1 && string(kvs[0].Key) != mine {
						p.link.Plan(deletesOnFirstVerify(srv, string(kvs[0].Key)))
						return
					}
					time.Sleep(time.Millisecond)
				}
			}()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				lk := mustLock(t, locker.NewMutex(p.sess, "x"))
				next := lockLater(deadline(t), locker.NewMutex(p.sess, "x"))
				time.Sleep(time.Second)
				spoil(p, srv, "x")
				if err := lk.Unlock(deadline(t)); err != nil {
					t.Errorf("Unlock: %v", err)
				}
				if r := <-next; r.err == nil {
					if err := r.lk.Unlock(deadline(t)); err != nil {
						t.Errorf("Unlock of the next: %v", err)
					}
				} else if !strings.Contains(r.err.Error(), "not a number") {
					t.Error(r.err)
				}
			})
		})
	}
}

// deletesOnFirstVerify deletes an entry as soon as its existence is verified: a
// Txn that only reads, since the one before has found it.
func deletesOnFirstVerify(srv *etcdfake.Server, key string) func(etcdfake.Call) etcdfake.Fate {
	return func(c etcdfake.Call) etcdfake.Fate {
		if txn, ok := c.Request.(*pb.TxnRequest); ok && len(txn.Compare) == 0 {
			go srv.Delete(key) // ends at once
		}
		return etcdfake.Fate{Request: oneWay, Reply: oneWay}
	}
}

// A name and a prefix may mean one queue. What the one has put for the other is
// the other's lock: its token is sent with the name that its owner knows.
func TestHandOverGivesALockOfTheNameThatItsOwnerUsed(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		lk := mustLock(t, locker.NewMutex(p.sess, "x"))
		next := lockLater(deadline(t), locker.NewMutexAt(p.sess, "holdfast/lock/x/@"))
		time.Sleep(time.Second)
		if err := lk.Unlock(deadline(t)); err != nil {
			t.Fatal(err)
		}
		r := <-next
		if r.err != nil {
			t.Fatal(r.err)
		}
		if r.lk.Name() != "holdfast/lock/x/@" {
			t.Errorf("named %q", r.lk.Name())
		}
	})
}
