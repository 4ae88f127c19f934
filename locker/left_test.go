package locker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
)

// The caller of Unlock sends the request, and leaves before it is answered. What
// goes on in its stead finds the entry gone, by that very request.
func TestUnlockThatWasCarriedOutForACallerWhoLeftIsNoLoss(t *testing.T) {
	for name, nextInLine := range map[string]bool{"nobody is next": false, "somebody joins meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				mu := locker.NewMutex(p.sess, "x")
				lk := mustLock(t, mu)
				p.link.Plan(func(etcdfake.Call) etcdfake.Fate { return etcdfake.Fate{LoseReply: true, Silent: true} })
				ctx, leave := context.WithCancel(deadline(t))
				left := make(chan error, 1)
				go func() { left <- lk.Unlock(ctx) }() // received below
				time.Sleep(oneWay + time.Millisecond)
				if len(standing(srv, "x")) != 0 {
					t.Fatal("the entry stands")
				}
				p.link.Plan(nil)
				var next <-chan result
				if nextInLine {
					next = lockLater(deadline(t), mu)
					time.Sleep(time.Millisecond)
				}
				leave()
				if err := <-left; !errors.Is(err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
					t.Errorf("Unlock: %v", err)
				}
				if err := lk.Unlock(deadline(t)); err != nil {
					t.Errorf("Unlock, asked again: %v", err)
				}
				if nextInLine {
					unlockAll(t, srv, mustHold(t, srv, []<-chan result{next}))
				}
				nothingStands(t, srv)
			})
		})
	}
}

// etcd's client repeats a put that was carried out, the second one is refused, and
// nobody answers the question what stands there.
func TestPutThatWasRefusedForItselfLeavesNothingWhenNobodyCanSaySo(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		puts := 0
		p.link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
			txn, ok := c.Request.(*pb.TxnRequest)
			switch {
			case !ok:
			case len(txn.Compare) == 0: // the question
				f.LoseRequest, f.Silent = true, true
			case isAbout(txn, "x") && puts == 0:
				f.LoseReply, f.Code = true, codes.Canceled
				puts++
			}
			return f
		})
		if _, err := locker.NewMutex(p.sess, "x").Lock(soon(t, time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock: %v", err)
		}
		if putsEver(srv, "x") != 1 {
			t.Error("no entry was put: this tests nothing")
		}
		p.heal()
		time.Sleep(10 * time.Second)
		nothingStands(t, srv)
	})
}

// Unlock waits for no answer about a lease that is lost: with that the lock is gone.
func TestUnlockThatIsNotAnsweredEndsWithTheLease(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		lk := mustLock(t, locker.NewMutex(p.sess, "x"))
		p.link.BlackHole()
		const before = time.Second // less than an attempt may take
		time.Sleep(p.sess.Remaining() - before)
		began := time.Now()
		if err := lk.Unlock(deadline(t)); !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("Unlock: %v", err)
		}
		if took := time.Since(began); took > before+time.Millisecond {
			t.Errorf("Unlock took %v, and the lease was lost after %v", took, before)
		}
	})
}

// A removal of the sweeper may be late: it names the entry that it means by its
// create revision.
func TestLateSweepSparesTheNextLockOfTheSameSession(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		mu := locker.NewMutex(p.sess, "x")
		lk := mustLock(t, mu)
		const late = 10 * time.Second
		refused := 0
		var swept atomic.Int32
		p.link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
			txn, ok := c.Request.(*pb.TxnRequest)
			switch {
			case !ok || !isRemoval(txn, "x"):
			case refused < 2: // the caller's own, and the session's
				f.LoseRequest, f.Code = true, codes.PermissionDenied
				refused++
			default:
				f.Request = late
				swept.Add(1)
			}
			return f
		})
		if err := lk.Unlock(deadline(t)); status.Code(err) != codes.PermissionDenied {
			t.Errorf("Unlock: %v", err)
		}
		time.Sleep(late / 2)
		if refused != 2 || swept.Load() == 0 {
			t.Fatalf("%d removals were refused, %d sweeps sent: this tests nothing", refused, swept.Load())
		}
		srv.Delete(string(standing(srv, "x")[0].Key)) // by hand, before the sweeper's removal arrives
		lk = mustLock(t, mu)
		time.Sleep(late)
		if err := lk.Check(); err != nil || !owns(srv, lk) {
			t.Errorf("the late sweep has removed the next lock's entry: %v", err)
		}
		p.link.Plan(nil)
		unlockAll(t, srv, []*locker.Lock{lk})
	})
}
