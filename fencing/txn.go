package fencing

import (
	"context"
	"fmt"
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Txn begins a transaction, built and committed like one of clientv3's:
//
//	resp, err := w.Txn(ctx).If(cmps...).Then(ops...).Else(ops...).Commit()
//
// It is sent as If(IsOwner) Then(OpTxn(cmps, then, els)), so the branch for
// failed comparisons runs for a holder whose own comparisons failed, and never
// for a stale one. Commit returns the response of the inner transaction, the
// one that the caller wrote, with the header of the outer one; Succeeded speaks
// of the caller's comparisons.
//
// It differs from clientv3's in that mistakes do not panic but come back from
// Commit, with nothing sent: [ErrTxnMisuse] (also for a second Commit, which
// with clientv3 would be a second transaction), [ErrTooManyOps], [ErrEmptyKey].
// For all other errors see [FencedWriter].
func (w *FencedWriter) Txn(ctx context.Context) clientv3.Txn {
	return &fencedTxn{w: w, ctx: ctx}
}

// stage is how far a transaction has been written down.
type stage int

const (
	begun stage = iota
	hasIf
	hasThen
	hasElse
	committed
)

func (s stage) String() string {
	return [...]string{"Txn", "If", "Then", "Else", "Commit"}[s]
}

type fencedTxn struct {
	w   *FencedWriter
	ctx context.Context

	mu    sync.Mutex // protects what follows; not held during the RPC
	stage stage
	cmps  []clientv3.Cmp
	then  []clientv3.Op
	els   []clientv3.Op
	err   error // the first mistake
}

func (t *fencedTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.advance(hasIf) {
		// Copied, so that a later change of the caller's slice or of a Cmp in it
		// does not reach the transaction. From 3.7 on a Cmp holds a pointer, and
		// OpTxn copies what that points to.
		t.cmps, _, _ = clientv3.OpTxn(slices.Clone(cs), nil, nil).Txn()
	}
	return t
}

func (t *fencedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.advance(hasThen) {
		t.then = append(t.then, ops...)
	}
	return t
}

func (t *fencedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.advance(hasElse) {
		t.els = append(t.els, ops...)
	}
	return t
}

func (t *fencedTxn) Commit() (*clientv3.TxnResponse, error) {
	r := t.w.request("txn", "")
	op, err := t.finish()
	if err != nil {
		return nil, r.refuse(err)
	}
	resp, err := r.send(t.ctx, op)
	if err != nil {
		return nil, err
	}
	inner := resp.Responses[0].GetResponseTxn()
	if inner == nil {
		return nil, r.malformed()
	}
	// The server fills in the header of the outermost response only.
	inner.Header = resp.Header
	return (*clientv3.TxnResponse)(inner), nil
}

// advance records a step, and reports whether it may follow on the ones before.
func (t *fencedTxn) advance(to stage) bool {
	if to <= t.stage {
		if t.err == nil {
			t.err = fmt.Errorf("%w: %v after %v", ErrTxnMisuse, to, t.stage)
		}
		return false
	}
	t.stage = to
	return true
}

func (t *fencedTxn) finish() (clientv3.Op, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advance(committed)
	if t.err != nil {
		return clientv3.Op{}, t.err
	}
	if err := checkTxn(t.cmps, t.then, t.els, MaxOps); err != nil {
		return clientv3.Op{}, err
	}
	return clientv3.OpTxn(t.cmps, t.then, t.els), nil
}

// checkTxn refuses what etcd would refuse for its form. As in etcd, the largest
// of the three lists counts for a level, and transactions inside get what is
// left.
func checkTxn(cmps []clientv3.Cmp, then, els []clientv3.Op, limit int) error {
	n := max(len(cmps), len(then), len(els))
	if n > limit {
		return fmt.Errorf("%w: %d, at most %d", ErrTooManyOps, n, limit)
	}
	for i := range cmps {
		if len(cmps[i].KeyBytes()) == 0 {
			return ErrEmptyKey
		}
	}
	for _, ops := range [][]clientv3.Op{then, els} {
		for _, op := range ops {
			if err := checkOp(op, limit-n); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkOp(op clientv3.Op, limit int) error {
	switch {
	case op.IsTxn():
		cmps, then, els := op.Txn()
		return checkTxn(cmps, then, els, limit)
	case !op.IsPut() && !op.IsDelete() && !op.IsGet():
		// clientv3 would panic.
		return fmt.Errorf("%w: an operation that is none", ErrTxnMisuse)
	case len(op.KeyBytes()) == 0:
		return ErrEmptyKey
	}
	return nil
}
