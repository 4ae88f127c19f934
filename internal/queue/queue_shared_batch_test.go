package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// sentTxns records the Txns that a process sends.
type sentTxns struct {
	mu    sync.Mutex // protects sizes
	sizes []int      // the number of Txns in each
}

// watch has the process's connection record them. fate decides what becomes of each; nil:
// they arrive.
func (s *sentTxns) watch(p *holdtest.Process, fate func(*pb.TxnRequest) etcdfake.Fate) {
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

// sizeOf returns the number of Txns in a batch; 1 for a Txn that is none.
func sizeOf(txn *pb.TxnRequest) int {
	n := 0
	for _, op := range txn.Success {
		if op.GetRequestTxn() != nil {
			n++
		}
	}
	return max(1, n)
}

// isAbout reports whether a Txn, or one in the batch, puts or deletes an entry of a lock.
func isAbout(txn *pb.TxnRequest, lock string) bool {
	return slices.ContainsFunc(txn.Success, func(op *pb.RequestOp) bool {
		if inner := op.GetRequestTxn(); inner != nil {
			return isAbout(inner, lock)
		}
		key := append(op.GetRequestPut().GetKey(), op.GetRequestDeleteRange().GetKey()...)
		return bytes.Contains(key, []byte("/"+lock+"/@/"))
	})
}

func countKeys(srv *etcdfake.Server, part string) (n int) {
	for _, kv := range srv.Keys("holdfast/lock/") {
		if strings.Contains(string(kv.Key), part) {
			n++
		}
	}
	return n
}

// sameTxns compares the sizes of Txns in any order: those of one moment are sent by
// different goroutines.
func sameTxns(got, want []int) bool {
	return slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want)))
}

func TestTxnsOfABusySessionAreBatched(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		var sent sentTxns
		sent.watch(p, nil)

		holdtest.ReleaseAll(t, srv, holdtest.MustHold(t, srv,
			holdtest.AcquireAll(kit.Within(t, time.Minute), p, holdtest.MaxInFlight)))
		if got := sent.take(); len(got) != 2*holdtest.MaxInFlight || slices.Max(got) != 1 {
			t.Errorf("%d locks and unlocks at once sent Txns of sizes %v, want no batch", holdtest.MaxInFlight, got)
		}

		const rest = 10
		want := append(slices.Repeat([]int{1}, holdtest.MaxInFlight), holdtest.MaxBatch, rest) // the last batch is not full
		began := time.Now()
		all := holdtest.AcquireAll(kit.Within(t, time.Minute), p, holdtest.MaxInFlight+holdtest.MaxBatch+rest)
		time.Sleep(kit.OneWay + holdtest.MaxWait/2)
		if n := countKeys(srv, "/@/"); n != holdtest.MaxInFlight+holdtest.MaxBatch {
			t.Errorf("%d entries stand as soon as they can, want %d: a full batch does not wait", n,
				holdtest.MaxInFlight+holdtest.MaxBatch)
		}
		held := holdtest.MustHold(t, srv, all)
		if got := sent.take(); !sameTxns(got, want) {
			t.Errorf("locks sent Txns of sizes %v, want %v", got, want)
		}
		if took := time.Since(began); took != holdtest.MaxWait+2*kit.OneWay {
			t.Errorf("the last was held after %v, want a round trip after %v", took, holdtest.MaxWait)
		}
		holdtest.ReleaseAll(t, srv, held)
		if got := sent.take(); !sameTxns(got, want) {
			t.Errorf("unlocks sent Txns of sizes %v, want %v", got, want)
		}
	})
}

// A reply lets the batch be sent only if fewer than holdtest.MaxInFlight Txns are in flight then.
// Otherwise the batch goes on collecting.
func TestBatchIsNotSentEarlyWhileTooManyTxnsAreInFlight(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		var sent sentTxns
		n := 0
		sent.watch(p, func(*pb.TxnRequest) etcdfake.Fate { // they are answered in order
			n++
			return etcdfake.Fate{Reply: time.Duration(n) * 20 * time.Millisecond}
		})
		all := holdtest.AcquireAll(kit.Within(t, time.Minute), p, holdtest.MaxInFlight+holdtest.MaxBatch)
		firstAnswer := 2*kit.OneWay + 20*time.Millisecond
		time.Sleep(firstAnswer - holdtest.MaxWait/4)
		all = append(all, holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("before")))
		time.Sleep(holdtest.MaxWait / 2) // four of five requests are still in flight
		all = append(all, holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("after")))
		held := holdtest.MustHold(t, srv, all)
		if got := sent.take(); !sameTxns(got, []int{1, 1, 1, 1, holdtest.MaxBatch, 2}) {
			t.Errorf("Txns of sizes %v: the last two should be one batch", got)
		}
		sent.watch(p, nil)
		holdtest.ReleaseAll(t, srv, held)
	})
}

func TestEachTxnOfABatchHasItsOwnReply(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := holdtest.Start(t, srv), holdtest.Start(t, srv)
		var elsewhere []*hold.Hold // the locks with odd numbers
		const n = holdtest.MaxInFlight + holdtest.MaxBatch
		for i := 1; i < n; i += 2 {
			elsewhere = append(elsewhere, holdtest.MustAcquire(t, other.Queue(fmt.Sprint("x", i))))
		}
		all := holdtest.AcquireAll(kit.Within(t, time.Minute), p, n)
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
		holdtest.ReleaseAll(t, srv, holdtest.MustHold(t, srv, all))
	})
}

// Two entries with one create revision would both be first.
func TestNestedForeignPrefixesAreNeverInOneBatch(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		busy := holdtest.AcquireAll(kit.Within(t, time.Minute), p, holdtest.MaxInFlight)
		time.Sleep(time.Microsecond)
		within := holdtest.AcquireLater(kit.Within(t, time.Minute), p.QueueAt("/a/!")) // sorts before "/a/<lease>"
		time.Sleep(time.Microsecond)
		around := holdtest.AcquireLater(kit.Within(t, time.Minute), p.QueueAt("/a"))
		inner := <-within
		if inner.Err != nil {
			t.Fatal(inner.Err)
		}
		if err := inner.H.Release(kit.Within(t, time.Minute)); err != nil {
			t.Error(err)
		}
		outer := <-around
		if outer.Err != nil {
			t.Fatal(outer.Err)
		}
		if outer.H.Token() == inner.H.Token() {
			t.Error("both were put at one revision")
		}
		holdtest.ReleaseAll(t, srv, append(holdtest.MustHold(t, srv, busy), outer.H))
	})
}

// All Txns in flight may be on a member that hangs, and the next request goes to another.
func TestBatchIsSentAfterAMillisecondWhileOthersHang(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		var sent sentTxns
		n := 0
		sent.watch(p, func(*pb.TxnRequest) etcdfake.Fate {
			n++
			return etcdfake.Fate{LoseRequest: n <= holdtest.MaxInFlight, Silent: true}
		})
		hang := holdtest.AcquireAll(kit.Within(t, time.Minute), p, holdtest.MaxInFlight)
		time.Sleep(time.Microsecond)
		began := time.Now()
		var rest []<-chan holdtest.Result
		for i := range 3 {
			rest = append(rest, holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue(fmt.Sprint("y", i))))
		}
		held := holdtest.MustHold(t, srv, rest)
		if took := time.Since(began); took > holdtest.MaxWait+2*kit.OneWay {
			t.Errorf("held after %v, want %v and a round trip", took, holdtest.MaxWait)
		}
		if got := sent.take(); !sameTxns(got, []int{1, 1, 1, 1, 3}) {
			t.Errorf("Txns of %v", got)
		}
		holdtest.ReleaseAll(t, srv, held)
		holdtest.ReleaseAll(t, srv, holdtest.MustHold(t, srv, hang)) // they are sent again
	})
}

// A Txn is not refused because of another one in its batch.
func TestTxnsOfARefusedBatchAreSentAlone(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		var sent sentTxns
		const n, forbidden = holdtest.MaxInFlight + 6, holdtest.MaxInFlight + 3
		sent.watch(p, func(txn *pb.TxnRequest) etcdfake.Fate {
			refused := isAbout(txn, fmt.Sprint("x", forbidden))
			return etcdfake.Fate{LoseRequest: refused, Code: codes.PermissionDenied}
		})
		var all []<-chan holdtest.Result
		for i := range n { // one by one, so that the first are in flight
			all = append(all, holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue(fmt.Sprint("x", i))))
			time.Sleep(time.Microsecond)
		}
		r := <-all[forbidden]
		if code := status.Code(r.Err); code != codes.PermissionDenied {
			t.Errorf("the forbidden one: %v", r.Err)
		}
		holdtest.ReleaseAll(t, srv, holdtest.MustHold(t, srv, slices.Delete(all, forbidden, forbidden+1)))
		if got := sent.take(); !slices.Contains(got, n-holdtest.MaxInFlight) {
			t.Errorf("Txns of sizes %v: no batch of all that waited", got)
		}
	})
}

// Without a reply the outcome of each Txn is unknown, so each attempt reads whether its
// entry stands. The session moves the gate once for all copies that may still arrive.
func TestUnansweredBatchLeavesNothing(t *testing.T) {
	for name, loss := range map[string]etcdfake.Fate{
		"carried out": {LoseReply: true}, "carried out, never answered": {LoseReply: true, Silent: true},
		"not carried out": {LoseRequest: true}, "repeated by etcd's client": {LoseReply: true, Code: codes.Canceled},
		"carried out later": {Request: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				var sent sentTxns
				lost := false
				sent.watch(p, func(txn *pb.TxnRequest) (f etcdfake.Fate) {
					if sizeOf(txn) > 1 && !lost {
						lost, f = true, loss
					}
					return f
				})
				const n = holdtest.MaxInFlight + 6
				held := holdtest.MustHold(t, srv, holdtest.AcquireAll(kit.Within(t, time.Minute), p, n))
				if !lost {
					t.Error("no batch was sent")
				}
				holdtest.ReleaseAll(t, srv, held)
				time.Sleep(2 * time.Minute)
				kit.NothingStands(t, srv)
				if moves := p.GateMoves(srv); moves == 0 || moves > 3 {
					t.Errorf("the session key was put again %d times, for %d releases", moves, n)
				}
			})
		})
	}
}

// A canceled caller's Txn is taken out of the batch while that waits. Once the batch is in
// flight, it is not canceled with the caller.
func TestCanceledCallerDoesNotCancelTheRestOfItsBatch(t *testing.T) {
	for name, after := range map[string]time.Duration{"while the batch waits": holdtest.MaxWait / 2,
		"while the batch is in flight": holdtest.MaxWait + kit.OneWay} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				var sent sentTxns
				sent.watch(p, nil)
				all := holdtest.AcquireAll(kit.Within(t, time.Minute), p, holdtest.MaxInFlight)
				time.Sleep(time.Microsecond)
				ctx, cancel := context.WithCancel(kit.Within(t, time.Minute))
				canceled := holdtest.AcquireLater(ctx, p.Queue("canceled"))
				for i := range 5 {
					all = append(all, holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue(fmt.Sprint("y", i))))
				}
				time.Sleep(after)
				cancel()
				if r := <-canceled; !errors.Is(r.Err, context.Canceled) {
					t.Errorf("the canceled call: %v", r.Err)
				}
				holdtest.ReleaseAll(t, srv, holdtest.MustHold(t, srv, all))
				if ever := kit.PutsEver(srv, kit.Entries("canceled")); ever > 1 || p.GateMoves(srv) != 0 {
					t.Errorf("%d entries of the canceled call were put, and the session key again %d times", ever, p.GateMoves(srv))
				}
				kit.NothingStands(t, srv)
				if got := sent.take(); slices.Max(got) < 5 {
					t.Errorf("Txns of sizes %v: the others were not batched", got)
				}
			})
		})
	}
}

func TestCloseEndsBatchedCalls(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		var sent sentTxns
		sent.watch(p, func(*pb.TxnRequest) etcdfake.Fate { return etcdfake.Fate{LoseRequest: true, Silent: true} })
		all := holdtest.AcquireAll(kit.Within(t, time.Minute), p, holdtest.MaxInFlight+holdtest.MaxBatch+3)
		time.Sleep(100 * time.Millisecond) // before any is sent again
		if got := sent.take(); !sameTxns(got, append(slices.Repeat([]int{1}, holdtest.MaxInFlight), holdtest.MaxBatch, 3)) {
			t.Errorf("Txns of sizes %v: this tests nothing", got)
		}
		began := time.Now()
		if err := p.Sess.Close(kit.Within(t, time.Minute)); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 4*kit.OneWay {
			t.Errorf("Close took %v", took)
		}
		for _, done := range all {
			if r := <-done; !errors.Is(r.Err, holdfast.ErrClosed) {
				t.Error(r.Err)
			}
		}
		if got := sent.take(); len(got) != 0 {
			t.Errorf("Txns of sizes %v were sent after Close was called", got)
		}
	})
}
