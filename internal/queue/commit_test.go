package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// put commits a Txn that puts key, and sends its reply.
func put(t *testing.T, c *committer, queue, key string) <-chan reply {
	done := make(chan reply, 1)
	go func() {
		r, err := c.commit(t.Context(), txn{queue: queue, then: []clientv3.Op{clientv3.OpPut(key, "")}})
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	synctest.Wait()
	return done
}

func TestTxnsAboutOneQueueAreNeverInOneBatch(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		c := &committer{host: lease.Open(start(t, srv).Sess.Ref())}
		for i := range maxInFlight {
			q := fmt.Sprint("/busy", i, "/")
			put(t, c, q, q+"e")
		}
		first, other, second := put(t, c, "/q/", "/q/1"), put(t, c, "/r/", "/r/1"), put(t, c, "/q/", "/q/2")
		revision, ofOther, ofSecond := (<-first).header.Revision, (<-other).header.Revision, (<-second).header.Revision
		if revision == ofSecond {
			t.Errorf("two entries of one queue were put at revision %d: neither is ahead of the other", revision)
		}
		if revision != ofOther {
			t.Errorf("entries of different queues were put at revisions %d and %d: the test has seen no batch", revision, ofOther)
		}
	})
}

// Far from etcd a round trip is long: a Txn must not wait for one.
func TestTxnWaitsAMillisecondForABatchAndNoLonger(t *testing.T) {
	const roundTrip = 80 * time.Millisecond
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		p.Link.Delay(roundTrip / 2)
		c := &committer{host: p.Host}
		began := time.Now()
		var all []<-chan reply
		for i := range maxInFlight + 3 {
			q := fmt.Sprint("/", i, "/")
			all = append(all, put(t, c, q, q+"e"))
		}
		for _, done := range all {
			<-done
		}
		if took := time.Since(began); took > roundTrip+time.Millisecond {
			t.Errorf("the last Txn was answered after %v, want a round trip of %v and 1ms", took, roundTrip)
		}
	})
}

// The copy that the batch was may still be carried out, whatever a Txn of it is
// answered when it is sent again.
func TestTxnOfABatchThatMayStillBeCarriedOutIsOpen(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		c := &committer{host: p.Host}
		for i := range maxInFlight {
			q := fmt.Sprint("/busy", i, "/")
			put(t, c, q, q+"e")
		}
		p.Link.Plan(func(etcdfake.Call) etcdfake.Fate { return etcdfake.Fate{LoseReply: true} })
		r, err := c.commit(t.Context(), txn{queue: "/q/", then: []clientv3.Op{clientv3.OpPut("/q/1", "")}})
		if err == nil || !r.unanswered || r.unsent {
			t.Errorf("a batch whose answer was lost: %+v, %v, want it open", r, err)
		}
	})
}

// sentTxns notes the Txns that a process sends.
type sentTxns struct {
	mu    sync.Mutex // protects sizes
	sizes []int      // of how many each is made
}

// watch has the process's connection note them. fate decides what becomes of each;
// nil: they arrive.
func (s *sentTxns) watch(p *process, fate func(*pb.TxnRequest) etcdfake.Fate) {
	p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
		var f etcdfake.Fate
		if txn, ok := c.Request.(*pb.TxnRequest); ok {
			s.mu.Lock()
			s.sizes = append(s.sizes, sizeOf(txn))
			s.mu.Unlock()
			if fate != nil {
				f = fate(txn)
			}
		}
		return f
	})
}

func (s *sentTxns) take() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sizes := s.sizes
	s.sizes = nil
	return sizes
}

// sizeOf is of how many Txns one is made.
func sizeOf(txn *pb.TxnRequest) int {
	n := 0
	for _, op := range txn.Success {
		if op.GetRequestTxn() != nil {
			n++
		}
	}
	return max(1, n)
}

// isAbout reports whether a Txn, or one that it is made of, puts or deletes an
// entry of a lock.
func isAbout(txn *pb.TxnRequest, lock string) bool {
	return slices.ContainsFunc(txn.Success, func(op *pb.RequestOp) bool {
		if inner := op.GetRequestTxn(); inner != nil {
			return isAbout(inner, lock)
		}
		key := append(op.GetRequestPut().GetKey(), op.GetRequestDeleteRange().GetKey()...)
		return bytes.Contains(key, []byte("/"+lock+"/@/"))
	})
}

// lockAll has a goroutine each lock x0, x1, …, all at the same moment.
func acquireAll(ctx context.Context, p *process, n int) []<-chan result {
	all := make([]<-chan result, n)
	for i := range all {
		all[i] = acquireLater(ctx, p.queue(fmt.Sprint("x", i)))
	}
	return all
}

// mustHold receives the locks, which have to be held.
func mustHold(t *testing.T, srv *etcdfake.Server, all []<-chan result) []*Hold {
	t.Helper()
	var held []*Hold
	for _, done := range all {
		r := <-done
		if r.err != nil {
			t.Error(r.err)
			continue
		}
		if !isFirst(srv, r.h) {
			t.Errorf("%s is held, and in etcd stand %v", r.h.Queue().Name(), kit.Standing(srv, r.h.Queue().Name()))
		}
		held = append(held, r.h)
	}
	return held
}

// unlockAll unlocks at the same moment, and then nothing may stand.
func unacquireAll(t *testing.T, srv *etcdfake.Server, held []*Hold) {
	t.Helper()
	var all sync.WaitGroup
	for _, h := range held {
		all.Go(func() {
			if err := h.Release(kit.Within(t, time.Minute)); err != nil {
				t.Errorf("%s: Unlock: %v", h.Queue().Name(), err)
			}
		})
	}
	all.Wait()
	kit.NothingStands(t, srv)
}

func countKeys(srv *etcdfake.Server, part string) (n int) {
	for _, kv := range srv.Keys("holdfast/lock/") {
		if strings.Contains(string(kv.Key), part) {
			n++
		}
	}
	return n
}

// isRemoval reports whether a Txn deletes an entry of a lock and puts none.
func isRemoval(txn *pb.TxnRequest, name string) bool {
	return isAbout(txn, name) && len(txn.Success) == 1 && txn.Success[0].GetRequestDeleteRange() != nil
}

// sameTxns reports whether the same were sent, in whatever order: those of one
// moment are sent by goroutines of their own.
func sameTxns(got, want []int) bool {
	return slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want)))
}

func TestTxnsOfABusySessionGoTogether(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		var sent sentTxns
		sent.watch(p, nil)

		unacquireAll(t, srv, mustHold(t, srv, acquireAll(kit.Within(t, time.Minute), p, maxInFlight)))
		if got := sent.take(); len(got) != 2*maxInFlight || slices.Max(got) != 1 {
			t.Errorf("%d locks and unlocks at once sent Txns of %v, want each by itself", maxInFlight, got)
		}

		const rest = 10
		want := append(slices.Repeat([]int{1}, maxInFlight), maxBatch, rest) // the last are a batch that is not full
		began := time.Now()
		all := acquireAll(kit.Within(t, time.Minute), p, maxInFlight+maxBatch+rest)
		time.Sleep(kit.OneWay + maxWait/2)
		if n := countKeys(srv, "/@/"); n != maxInFlight+maxBatch {
			t.Errorf("%d entries stand as soon as they can, want %d: a group that is complete does not wait", n, maxInFlight+maxBatch)
		}
		held := mustHold(t, srv, all)
		if got := sent.take(); !sameTxns(got, want) {
			t.Errorf("locks sent Txns of %v, want %v", got, want)
		}
		if took := time.Since(began); took != maxWait+2*kit.OneWay {
			t.Errorf("the last was held after %v, want a round trip after %v", took, maxWait)
		}
		unacquireAll(t, srv, held)
		if got := sent.take(); !sameTxns(got, want) {
			t.Errorf("unlocks sent Txns of %v, want %v", got, want)
		}
	})
}

// An answer makes room for another request only while no more than the usual
// number is in flight. Otherwise the batch goes on collecting.
func TestNoGroupIsSentEarlyWhileMoreThanEnoughIsUnderWay(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		var sent sentTxns
		n := 0
		sent.watch(p, func(*pb.TxnRequest) etcdfake.Fate { // the first is answered first, and so on
			n++
			return etcdfake.Fate{Reply: time.Duration(n) * 20 * time.Millisecond}
		})
		all := acquireAll(kit.Within(t, time.Minute), p, maxInFlight+maxBatch)
		firstAnswer := 2*kit.OneWay + 20*time.Millisecond
		time.Sleep(firstAnswer - maxWait/4)
		all = append(all, acquireLater(kit.Within(t, time.Minute), p.queue("before")))
		time.Sleep(maxWait / 2) // four of five requests are still in flight
		all = append(all, acquireLater(kit.Within(t, time.Minute), p.queue("after")))
		held := mustHold(t, srv, all)
		if got := sent.take(); !sameTxns(got, []int{1, 1, 1, 1, maxBatch, 2}) {
			t.Errorf("Txns of %v: the last two should have gone together", got)
		}
		sent.watch(p, nil)
		unacquireAll(t, srv, held)
	})
}

func TestEachTxnOfAGroupHasItsOwnAnswer(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := start(t, srv), start(t, srv)
		var elsewhere []*Hold // every other one
		const n = maxInFlight + maxBatch
		for i := 1; i < n; i += 2 {
			elsewhere = append(elsewhere, mustAcquire(t, other.queue(fmt.Sprint("x", i))))
		}
		all := acquireAll(kit.Within(t, time.Minute), p, n)
		time.Sleep(time.Second)
		for i, done := range all {
			if held := len(done) == 1; held != (i%2 == 0) {
				t.Errorf("x%d: held is %v", i, held)
			}
		}
		for _, h := range elsewhere {
			if err := h.Release(kit.Within(t, time.Minute)); err != nil {
				t.Error(err)
			}
		}
		unacquireAll(t, srv, mustHold(t, srv, all))
	})
}

// Of two entries with one create revision neither is ahead of the other.
func TestEntriesOfForeignPrefixesWithinEachOtherNeverGoTogether(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		busy := acquireAll(kit.Within(t, time.Minute), p, maxInFlight)
		time.Sleep(time.Microsecond)
		within := acquireLater(kit.Within(t, time.Minute), p.queueAt("/a/!")) // before "/a/<lease>" by key
		time.Sleep(time.Microsecond)
		around := acquireLater(kit.Within(t, time.Minute), p.queueAt("/a"))
		inner := <-within
		if inner.err != nil {
			t.Fatal(inner.err)
		}
		if err := inner.h.Release(kit.Within(t, time.Minute)); err != nil {
			t.Error(err)
		}
		outer := <-around
		if outer.err != nil {
			t.Fatal(outer.err)
		}
		if outer.h.Token() == inner.h.Token() {
			t.Error("both were put at one revision")
		}
		unacquireAll(t, srv, append(mustHold(t, srv, busy), outer.h))
	})
}

// A member may hang with what is under way, and the next request go to another.
func TestNobodyWaitsForLongToGoTogether(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		var sent sentTxns
		n := 0
		sent.watch(p, func(*pb.TxnRequest) etcdfake.Fate {
			n++
			return etcdfake.Fate{LoseRequest: n <= maxInFlight, Silent: true}
		})
		hang := acquireAll(kit.Within(t, time.Minute), p, maxInFlight)
		time.Sleep(time.Microsecond)
		began := time.Now()
		var rest []<-chan result
		for i := range 3 {
			rest = append(rest, acquireLater(kit.Within(t, time.Minute), p.queue(fmt.Sprint("y", i))))
		}
		held := mustHold(t, srv, rest)
		if took := time.Since(began); took > maxWait+2*kit.OneWay {
			t.Errorf("held after %v, want %v and a round trip", took, maxWait)
		}
		if got := sent.take(); !sameTxns(got, []int{1, 1, 1, 1, 3}) {
			t.Errorf("Txns of %v", got)
		}
		unacquireAll(t, srv, held)
		unacquireAll(t, srv, mustHold(t, srv, hang)) // sent again when the attempt is over
	})
}

// Nobody is refused for what somebody else has asked for.
func TestTxnsThatAreRefusedTogetherAreSentApart(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		var sent sentTxns
		const n, forbidden = maxInFlight + 6, maxInFlight + 3
		sent.watch(p, func(txn *pb.TxnRequest) etcdfake.Fate {
			refused := isAbout(txn, fmt.Sprint("x", forbidden))
			return etcdfake.Fate{LoseRequest: refused, Code: codes.PermissionDenied}
		})
		var all []<-chan result
		for i := range n { // one by one, so that it is known who waits
			all = append(all, acquireLater(kit.Within(t, time.Minute), p.queue(fmt.Sprint("x", i))))
			time.Sleep(time.Microsecond)
		}
		r := <-all[forbidden]
		if code := status.Code(r.err); code != codes.PermissionDenied {
			t.Errorf("the one that is forbidden: %v", r.err)
		}
		unacquireAll(t, srv, mustHold(t, srv, slices.Delete(all, forbidden, forbidden+1)))
		if got := sent.take(); !slices.Contains(got, n-maxInFlight) {
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
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				var sent sentTxns
				lost := false
				sent.watch(p, func(txn *pb.TxnRequest) (f etcdfake.Fate) {
					if sizeOf(txn) > 1 && !lost {
						lost, f = true, loss
					}
					return f
				})
				const n = maxInFlight + 6
				held := mustHold(t, srv, acquireAll(kit.Within(t, time.Minute), p, n))
				if !lost {
					t.Error("no group was sent")
				}
				unacquireAll(t, srv, held)
				time.Sleep(2 * time.Minute)
				kit.NothingStands(t, srv)
				if moves := p.GateMoves(srv); moves == 0 || moves > 3 {
					t.Errorf("the session key was put again %d times, for %d releases", moves, n)
				}
			})
		})
	}
}

// Who leaves takes nobody along: whether its Txn waits, and then is not sent, or
// is under way with others.
func TestCallerThatLeavesAGroupLeavesTheOthersInIt(t *testing.T) {
	for name, after := range map[string]time.Duration{"while it waits": maxWait / 2, "while it is under way": maxWait + kit.OneWay} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				var sent sentTxns
				sent.watch(p, nil)
				all := acquireAll(kit.Within(t, time.Minute), p, maxInFlight)
				time.Sleep(time.Microsecond)
				ctx, leave := context.WithCancel(kit.Within(t, time.Minute))
				leaver := acquireLater(ctx, p.queue("leaver"))
				for i := range 5 {
					all = append(all, acquireLater(kit.Within(t, time.Minute), p.queue(fmt.Sprint("y", i))))
				}
				time.Sleep(after)
				leave()
				if r := <-leaver; !errors.Is(r.err, context.Canceled) {
					t.Errorf("the leaver: %v", r.err)
				}
				unacquireAll(t, srv, mustHold(t, srv, all))
				if ever := kit.PutsEver(srv, kit.Entries("leaver")); ever > 1 || p.GateMoves(srv) != 0 {
					t.Errorf("%d entries of the leaver's were put, and the session key again %d times", ever, p.GateMoves(srv))
				}
				kit.NothingStands(t, srv)
				if got := sent.take(); slices.Max(got) < 5 {
					t.Errorf("Txns of %v: the others did not go together", got)
				}
			})
		})
	}
}

func TestCloseEndsThoseThatGoTogether(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		var sent sentTxns
		sent.watch(p, func(*pb.TxnRequest) etcdfake.Fate { return etcdfake.Fate{LoseRequest: true, Silent: true} })
		all := acquireAll(kit.Within(t, time.Minute), p, maxInFlight+maxBatch+3)
		time.Sleep(100 * time.Millisecond) // before any is sent again
		if got := sent.take(); !sameTxns(got, append(slices.Repeat([]int{1}, maxInFlight), maxBatch, 3)) {
			t.Errorf("Txns of %v: not what this test is about", got)
		}
		began := time.Now()
		if err := p.Sess.Close(kit.Within(t, time.Minute)); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 4*kit.OneWay {
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
