package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/fencing"
)

func TestMistakesInATransactionComeBackFromCommit(t *testing.T) {
	h, kv := holding(t)
	cmp, op := clientv3.Compare(clientv3.CreateRevision("k"), "=", 0), clientv3.OpPut("k", "v")
	for name, build := range map[string]func(clientv3.Txn) clientv3.Txn{
		"If twice":        func(t clientv3.Txn) clientv3.Txn { return t.If(cmp).If(cmp) },
		"Then twice":      func(t clientv3.Txn) clientv3.Txn { return t.Then(op).Then(op) },
		"Else twice":      func(t clientv3.Txn) clientv3.Txn { return t.Else(op).Else(op) },
		"If after Then":   func(t clientv3.Txn) clientv3.Txn { return t.Then(op).If(cmp) },
		"If after Else":   func(t clientv3.Txn) clientv3.Txn { return t.Else(op).If(cmp) },
		"Then after Else": func(t clientv3.Txn) clientv3.Txn { return t.Else(op).Then(op) },
		"no operation":    func(t clientv3.Txn) clientv3.Txn { return t.Then(clientv3.Op{}) },
	} {
		t.Run(name, func(t *testing.T) {
			txn := build(fencing.NewFencedWriter(h).Txn(t.Context()))
			for range 2 {
				_, err := txn.Commit()
				refused(t, kv, err, fencing.ErrTxnMisuse)
			}
		})
	}
}

// With clientv3 a second Commit is a second transaction.
func TestTransactionIsCommittedOnce(t *testing.T) {
	h, kv := holding(t)
	txn := fencing.NewFencedWriter(h).Txn(t.Context()).Then(clientv3.OpPut("k", "v"))
	if _, err := txn.Commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := txn.Commit(); !errors.Is(err, fencing.ErrTxnMisuse) || kv.sent() != 1 {
		t.Errorf("second Commit: %v; %d RPCs", err, kv.sent())
	}
	txn.Then(clientv3.OpPut("k", "w"))
	if _, err := txn.Commit(); !errors.Is(err, fencing.ErrTxnMisuse) || kv.sent() != 1 {
		t.Errorf("third Commit: %v; %d RPCs", err, kv.sent())
	}
}

// What the caller does to its slices between If and Commit must not change what
// is compared or written.
func TestTransactionCopiesItsArguments(t *testing.T) {
	h, kv := holding(t)
	cmps := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision("absent"), "=", 0)}
	then := []clientv3.Op{clientv3.OpPut("k", "v")}
	txn := fencing.NewFencedWriter(h).Txn(t.Context()).If(cmps...).Then(then...)
	cmps[0].WithKeyBytes([]byte(entry))
	then[0] = clientv3.OpPut("other", "v")
	if resp, err := txn.Commit(); err != nil || !resp.Succeeded {
		t.Errorf("%v, %v", resp, err)
	}
	if _, ok := kv.get("k"); !ok {
		t.Error("the transaction wrote something else")
	}
}

func puts(n int) (ops []clientv3.Op) {
	for i := range n {
		ops = append(ops, clientv3.OpPut(fmt.Sprint("k/", i), "v"))
	}
	return ops
}

func compares(n int) (cmps []clientv3.Cmp) {
	for i := range n {
		cmps = append(cmps, clientv3.Compare(clientv3.CreateRevision(fmt.Sprint("absent/", i)), "=", 0))
	}
	return cmps
}

// limitTests are transactions at etcd's limit, and one beyond it. The test with
// etcd goes through them too, to see that etcd agrees.
var limitTests = []struct {
	name      string
	cmps      []clientv3.Cmp
	then, els []clientv3.Op
	ok        bool
}{
	{"all lists full", compares(127), puts(127), puts(127), true},
	{"comparisons", compares(128), nil, nil, false},
	{"then", nil, puts(128), nil, false},
	{"else", nil, nil, puts(128), false},
	{"nested", nil, []clientv3.Op{clientv3.OpTxn(nil, puts(126), nil)}, nil, true},
	{"nested, too many", nil, []clientv3.Op{clientv3.OpTxn(nil, puts(127), nil)}, nil, false},
	{"nested in else", compares(27), nil, []clientv3.Op{clientv3.OpTxn(nil, nil, puts(100))}, true},
	{"nested in else, too many", compares(28), nil, []clientv3.Op{clientv3.OpTxn(nil, nil, puts(100))}, false},
	{"nested twice", nil, []clientv3.Op{clientv3.OpTxn(compares(26), []clientv3.Op{clientv3.OpTxn(nil, puts(100), nil)}, nil)}, nil, true},
	{"nested twice, too many", nil, []clientv3.Op{clientv3.OpTxn(compares(27), []clientv3.Op{clientv3.OpTxn(nil, puts(100), nil)}, nil)}, nil, false},
}

func TestTooManyOperationsAreRefusedBeforeTheyAreSent(t *testing.T) {
	if fencing.MaxOps != 127 {
		t.Errorf("MaxOps is %d", fencing.MaxOps)
	}
	for _, c := range limitTests {
		t.Run(c.name, func(t *testing.T) {
			h, kv := holding(t)
			_, err := fencing.NewFencedWriter(h).Txn(t.Context()).If(c.cmps...).Then(c.then...).Else(c.els...).Commit()
			if c.ok {
				if err != nil {
					t.Error(err)
				}
				return
			}
			refused(t, kv, err, fencing.ErrTooManyOps)
		})
	}
}

// TestWireForm pins what is sent: one transaction that compares first of all.
func TestWireForm(t *testing.T) {
	h, _ := holding(t)
	var sent []*fakeTxn
	h.cli.KV = recorder{h.cli.KV, &sent}
	w := fencing.NewFencedWriter(h)
	for _, write := range []func() error{
		func() error { _, err := w.Put(t.Context(), "k", "v", clientv3.WithLease(7)); return err },
		func() error { _, err := w.Delete(t.Context(), "k", clientv3.WithRange("l")); return err },
		func() error {
			_, err := w.Txn(t.Context()).If(compares(2)...).Then(puts(3)...).Else(puts(4)...).Commit()
			return err
		},
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	for i, txn := range sent {
		if len(txn.cmps) != 1 || len(txn.then) != 1 || len(txn.els) != 0 || string(txn.cmps[0].KeyBytes()) != entry {
			t.Errorf("write %d is If(%d) Then(%d) Else(%d)", i, len(txn.cmps), len(txn.then), len(txn.els))
		}
	}
	if op := sent[0].then[0]; !op.IsPut() || string(op.KeyBytes()) != "k" || string(op.ValueBytes()) != "v" {
		t.Error("Put does not put what it was given")
	}
	if op := sent[1].then[0]; !op.IsDelete() || !slices.Equal(op.RangeBytes(), []byte("l")) {
		t.Error("Delete does not delete what it was given")
	}
	if cmps, then, els := sent[2].then[0].Txn(); len(cmps) != 2 || len(then) != 3 || len(els) != 4 {
		t.Error("Txn is not passed on whole")
	}
}

type recorder struct {
	clientv3.KV
	sent *[]*fakeTxn
}

func (r recorder) Txn(ctx context.Context) clientv3.Txn {
	txn := r.KV.Txn(ctx).(*fakeTxn)
	*r.sent = append(*r.sent, txn)
	return txn
}

func ExampleFencedWriter_Txn() {
	cli, kv := newFake()
	lk := &holder{cli: cli, entry: entry, token: fencing.Token(kv.set(entry, ""))}

	resp, err := fencing.NewFencedWriter(lk).Txn(context.Background()).
		If(clientv3.Compare(clientv3.CreateRevision("jobs/7/done"), "=", 0)).
		Then(clientv3.OpPut("jobs/7/done", "true")).
		Else(clientv3.OpGet("jobs/7/done")).
		Commit()
	fmt.Println(resp.Succeeded, err) // of one's own comparison: the fence either held or is the error
	// Output: true <nil>
}
