package locker_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// sentTxns notes the Txns that a process sends.
type sentTxns struct {
	mu    sync.Mutex // protects sizes
	sizes []int      // of how many each is made
}

// watch has the process's connection note them. fate decides what becomes of each;
// nil: they arrive.
func (s *sentTxns) watch(p *process, fate func(*pb.TxnRequest) etcdfake.Fate) {
	p.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
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
func lockAll(ctx context.Context, p *process, n int) []<-chan result {
	all := make([]<-chan result, n)
	for i := range all {
		all[i] = lockLater(ctx, locker.NewMutex(p.sess, fmt.Sprint("x", i)))
	}
	return all
}

// mustHold receives the locks, which have to be held.
func mustHold(t *testing.T, srv *etcdfake.Server, all []<-chan result) []*locker.Lock {
	t.Helper()
	var held []*locker.Lock
	for _, done := range all {
		r := <-done
		if r.err != nil {
			t.Error(r.err)
			continue
		}
		if !owns(srv, r.lk) {
			t.Errorf("%s is held, and in etcd stand %v", r.lk.Name(), standing(srv, r.lk.Name()))
		}
		held = append(held, r.lk)
	}
	return held
}

// unlockAll unlocks at the same moment, and then nothing may stand.
func unlockAll(t *testing.T, srv *etcdfake.Server, held []*locker.Lock) {
	t.Helper()
	var all sync.WaitGroup
	for _, lk := range held {
		all.Go(func() {
			if err := lk.Unlock(deadline(t)); err != nil {
				t.Errorf("%s: Unlock: %v", lk.Name(), err)
			}
		})
	}
	all.Wait()
	nothingStands(t, srv)
}

func nothingStands(t *testing.T, srv *etcdfake.Server) {
	t.Helper()
	for _, kv := range srv.Keys("holdfast/lock/") {
		if strings.Contains(string(kv.Key), "/@/") {
			t.Errorf("left behind: %s", kv.Key)
		}
	}
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

// gateMoves is how often a session has put its session key again.
func gateMoves(srv *etcdfake.Server, sess *session.Session) (n int) {
	return len(srv.History(lease.Open(sess.Ref()).SessionKey(sess.Lease()))) - 1
}

// putsEver is how many entries of a lock were ever put.
func putsEver(srv *etcdfake.Server, lock string) (n int) {
	for _, c := range srv.History("holdfast/lock/" + lock + "/@/") {
		if !c.Deleted {
			n++
		}
	}
	return n
}
