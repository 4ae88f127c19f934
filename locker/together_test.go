package locker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
)

// Of internal/queue: how many Txns of a session are under way before others wait
// to go together, how many go together at most, and how long they wait at most.
const (
	underWay, together = 4, 16
	maxWait            = time.Millisecond
)

// sameTxns reports whether the same were sent, in whatever order: those of one
// moment are sent by goroutines of their own.
func sameTxns(got, want []int) bool {
	return slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want)))
}

func TestTxnsOfABusySessionGoTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		var sent sentTxns
		sent.watch(p, nil)

		unlockAll(t, srv, mustHold(t, srv, lockAll(deadline(t), p, underWay)))
		if got := sent.take(); len(got) != 2*underWay || slices.Max(got) != 1 {
			t.Errorf("%d locks and unlocks at once sent Txns of %v, want each by itself", underWay, got)
		}

		const rest = 10
		want := append(slices.Repeat([]int{1}, underWay), together, rest) // the last are a batch that is not full
		began := time.Now()
		all := lockAll(deadline(t), p, underWay+together+rest)
		time.Sleep(oneWay + maxWait/2)
		if n := countKeys(srv, "/@/"); n != underWay+together {
			t.Errorf("%d entries stand as soon as they can, want %d: a group that is complete does not wait", n, underWay+together)
		}
		held := mustHold(t, srv, all)
		if got := sent.take(); !sameTxns(got, want) {
			t.Errorf("locks sent Txns of %v, want %v", got, want)
		}
		if took := time.Since(began); took != maxWait+2*oneWay {
			t.Errorf("the last was held after %v, want a round trip after %v", took, maxWait)
		}
		unlockAll(t, srv, held)
		if got := sent.take(); !sameTxns(got, want) {
			t.Errorf("unlocks sent Txns of %v, want %v", got, want)
		}
	})
}

// An answer makes room for another request only while no more than the usual
// number is in flight. Otherwise the batch goes on collecting.
func TestNoGroupIsSentEarlyWhileMoreThanEnoughIsUnderWay(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		var sent sentTxns
		n := 0
		sent.watch(p, func(*pb.TxnRequest) etcdfake.Fate { // the first is answered first, and so on
			n++
			return etcdfake.Fate{Reply: time.Duration(n) * 20 * time.Millisecond}
		})
		all := lockAll(deadline(t), p, underWay+together)
		firstAnswer := 2*oneWay + 20*time.Millisecond
		time.Sleep(firstAnswer - maxWait/4)
		all = append(all, lockLater(deadline(t), locker.NewMutex(p.sess, "before")))
		time.Sleep(maxWait / 2) // four of five requests are still in flight
		all = append(all, lockLater(deadline(t), locker.NewMutex(p.sess, "after")))
		held := mustHold(t, srv, all)
		if got := sent.take(); !sameTxns(got, []int{1, 1, 1, 1, together, 2}) {
			t.Errorf("Txns of %v: the last two should have gone together", got)
		}
		sent.watch(p, nil)
		unlockAll(t, srv, held)
	})
}

func TestEachTxnOfAGroupHasItsOwnAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := start(t, srv), start(t, srv)
		var elsewhere []*locker.Lock // every other one
		const n = underWay + together
		for i := 1; i < n; i += 2 {
			elsewhere = append(elsewhere, mustLock(t, locker.NewMutex(other.sess, fmt.Sprint("x", i))))
		}
		all := lockAll(deadline(t), p, n)
		time.Sleep(time.Second)
		for i, done := range all {
			if held := len(done) == 1; held != (i%2 == 0) {
				t.Errorf("x%d: held is %v", i, held)
			}
		}
		for _, lk := range elsewhere {
			if err := lk.Unlock(deadline(t)); err != nil {
				t.Error(err)
			}
		}
		unlockAll(t, srv, mustHold(t, srv, all))
	})
}

// Of two entries with one create revision neither is ahead of the other.
func TestEntriesOfForeignPrefixesWithinEachOtherNeverGoTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		busy := lockAll(deadline(t), p, underWay)
		time.Sleep(time.Microsecond)
		within := lockLater(deadline(t), locker.NewMutexAt(p.sess, "/a/!")) // before "/a/<lease>" by key
		time.Sleep(time.Microsecond)
		around := lockLater(deadline(t), locker.NewMutexAt(p.sess, "/a"))
		inner := <-within
		if inner.err != nil {
			t.Fatal(inner.err)
		}
		if err := inner.lk.Unlock(deadline(t)); err != nil {
			t.Error(err)
		}
		outer := <-around
		if outer.err != nil {
			t.Fatal(outer.err)
		}
		if outer.lk.Token() == inner.lk.Token() {
			t.Error("both were put at one revision")
		}
		unlockAll(t, srv, append(mustHold(t, srv, busy), outer.lk))
	})
}

// A member may hang with what is under way, and the next request go to another.
func TestNobodyWaitsForLongToGoTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		var sent sentTxns
		n := 0
		sent.watch(p, func(*pb.TxnRequest) etcdfake.Fate {
			n++
			return etcdfake.Fate{LoseRequest: n <= underWay, Silent: true}
		})
		hang := lockAll(deadline(t), p, underWay)
		time.Sleep(time.Microsecond)
		began := time.Now()
		var rest []<-chan result
		for i := range 3 {
			rest = append(rest, lockLater(deadline(t), locker.NewMutex(p.sess, fmt.Sprint("y", i))))
		}
		held := mustHold(t, srv, rest)
		if took := time.Since(began); took > maxWait+2*oneWay {
			t.Errorf("held after %v, want %v and a round trip", took, maxWait)
		}
		if got := sent.take(); !sameTxns(got, []int{1, 1, 1, 1, 3}) {
			t.Errorf("Txns of %v", got)
		}
		unlockAll(t, srv, held)
		unlockAll(t, srv, mustHold(t, srv, hang)) // sent again when the attempt is over
	})
}

// Nobody is refused for what somebody else has asked for.
func TestTxnsThatAreRefusedTogetherAreSentApart(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		var sent sentTxns
		const n, forbidden = underWay + 6, underWay + 3
		sent.watch(p, func(txn *pb.TxnRequest) etcdfake.Fate {
			refused := isAbout(txn, fmt.Sprint("x", forbidden))
			return etcdfake.Fate{LoseRequest: refused, Code: codes.PermissionDenied}
		})
		var all []<-chan result
		for i := range n { // one by one, so that it is known who waits
			all = append(all, lockLater(deadline(t), locker.NewMutex(p.sess, fmt.Sprint("x", i))))
			time.Sleep(time.Microsecond)
		}
		r := <-all[forbidden]
		if code := status.Code(r.err); code != codes.PermissionDenied {
			t.Errorf("the one that is forbidden: %v", r.err)
		}
		unlockAll(t, srv, mustHold(t, srv, slices.Delete(all, forbidden, forbidden+1)))
		if got := sent.take(); !slices.Contains(got, n-underWay) {
			t.Errorf("Txns of %v: none was of all that waited", got)
		}
	})
}

// Without an answer the outcome of each is unknown, so each looks for its own entry. The
// session shuts out the copies that are still on their way, once for all of them.
func TestTxnsThatAreNotAnsweredTogetherLeaveNothing(t *testing.T) {
	for name, loss := range map[string]etcdfake.Fate{
		"carried out": {LoseReply: true}, "carried out, never answered": {LoseReply: true, Silent: true},
		"not carried out": {LoseRequest: true}, "repeated by etcd's client": {LoseReply: true, Code: codes.Canceled},
		"carried out later": {Request: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				var sent sentTxns
				lost := false
				sent.watch(p, func(txn *pb.TxnRequest) (f etcdfake.Fate) {
					if sizeOf(txn) > 1 && !lost {
						lost, f = true, loss
					}
					return f
				})
				const n = underWay + 6
				held := mustHold(t, srv, lockAll(deadline(t), p, n))
				if !lost {
					t.Error("no group was sent")
				}
				unlockAll(t, srv, held)
				time.Sleep(2 * time.Minute)
				nothingStands(t, srv)
				if moves := gateMoves(srv, p.sess); moves == 0 || moves > 3 {
					t.Errorf("the session key was put again %d times, for %d releases", moves, n)
				}
			})
		})
	}
}

// Who leaves takes nobody along: whether its Txn waits, and then is not sent, or
// is under way with others.
func TestCallerThatLeavesAGroupLeavesTheOthersInIt(t *testing.T) {
	for name, after := range map[string]time.Duration{"while it waits": maxWait / 2, "while it is under way": maxWait + oneWay} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				var sent sentTxns
				sent.watch(p, nil)
				all := lockAll(deadline(t), p, underWay)
				time.Sleep(time.Microsecond)
				ctx, leave := context.WithCancel(deadline(t))
				leaver := lockLater(ctx, locker.NewMutex(p.sess, "leaver"))
				for i := range 5 {
					all = append(all, lockLater(deadline(t), locker.NewMutex(p.sess, fmt.Sprint("y", i))))
				}
				time.Sleep(after)
				leave()
				if r := <-leaver; !errors.Is(r.err, context.Canceled) {
					t.Errorf("the leaver: %v", r.err)
				}
				unlockAll(t, srv, mustHold(t, srv, all))
				if ever := putsEver(srv, "leaver"); ever > 1 || gateMoves(srv, p.sess) != 0 {
					t.Errorf("%d entries of the leaver's were put, and the session key again %d times", ever, gateMoves(srv, p.sess))
				}
				nothingStands(t, srv)
				if got := sent.take(); slices.Max(got) < 5 {
					t.Errorf("Txns of %v: the others did not go together", got)
				}
			})
		})
	}
}

func TestCloseEndsThoseThatGoTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		var sent sentTxns
		sent.watch(p, func(*pb.TxnRequest) etcdfake.Fate { return etcdfake.Fate{LoseRequest: true, Silent: true} })
		all := lockAll(deadline(t), p, underWay+together+3)
		time.Sleep(100 * time.Millisecond) // before any is sent again
		if got := sent.take(); !sameTxns(got, append(slices.Repeat([]int{1}, underWay), together, 3)) {
			t.Errorf("Txns of %v: not what this test is about", got)
		}
		began := time.Now()
		if err := p.sess.Close(deadline(t)); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 4*oneWay {
			t.Errorf("Close took %v", took)
		}
		for _, done := range all {
			if r := <-done; !errors.Is(r.err, holdfast.ErrClosed) {
				t.Error(r.err)
			}
		}
		if got := sent.take(); len(got) != 0 {
			t.Errorf("after Close was called Txns of %v were sent", got)
		}
	})
}
