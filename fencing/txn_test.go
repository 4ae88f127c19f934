package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/testkit/fencingtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

func TestMisuseOfATransactionIsAnErrorOfCommit(t *testing.T) {
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
				refused(t, kv, err)
				if !errors.As(err, new(*holdfast.ArgumentError)) {
					t.Errorf("error is %v", err)
				}
			}
		})
	}
}

func TestEmptyKeyInATransactionIsRefused(t *testing.T) {
	h, kv := holding(t)
	w := fencing.NewFencedWriter(h)
	for name, txn := range map[string]clientv3.Txn{
		"if":     w.Txn(t.Context()).If(clientv3.Compare(clientv3.Version(""), "=", 0)),
		"cmp{}":  w.Txn(t.Context()).If(clientv3.Cmp{}),
		"then":   w.Txn(t.Context()).Then(clientv3.OpGet("a"), clientv3.OpPut("", "v")),
		"else":   w.Txn(t.Context()).Else(clientv3.OpDelete("")),
		"nested": w.Txn(t.Context()).Then(clientv3.OpTxn(nil, nil, []clientv3.Op{clientv3.OpGet("")})),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := txn.Commit()
			refused(t, kv, err)
			if !isArgument(err, "key") {
				t.Errorf("error is %v", err)
			}
		})
	}
}

// In clientv3 a second Commit sends the transaction again.
func TestTransactionIsCommittedOnce(t *testing.T) {
	h, kv := holding(t)
	txn := fencing.NewFencedWriter(h).Txn(t.Context()).Then(clientv3.OpPut("k", "v"))
	if _, err := txn.Commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := txn.Commit(); !isArgument(err, "Commit") || kv.sent() != 1 {
		t.Errorf("second Commit: %v; %d RPCs", err, kv.sent())
	}
	txn.Then(clientv3.OpPut("k", "w"))
	if _, err := txn.Commit(); !isArgument(err, "Commit") || kv.sent() != 1 {
		t.Errorf("third Commit: %v; %d RPCs", err, kv.sent())
	}
}

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
	if len(kv.etcd.Keys("k")) != 1 || len(kv.etcd.Keys("other")) != 0 {
		t.Error("a change after If and Then has reached the transaction")
	}
}

func TestTooManyOperationsAreRefusedBeforeTheyAreSent(t *testing.T) {
	for _, c := range fencingtest.Limits {
		t.Run(c.Name, func(t *testing.T) {
			h, kv := holding(t)
			_, err := fencing.NewFencedWriter(h).Txn(t.Context()).If(c.Cmps...).Then(c.Then...).Else(c.Els...).Commit()
			if c.OK {
				if err != nil {
					t.Error(err)
				}
				return
			}
			refused(t, kv, err)
			if !isArgument(err, "ops") {
				t.Errorf("error is %v", err)
			}
		})
	}
}

func TestEachWriteIsSentAsOneTransactionThatComparesFirst(t *testing.T) {
	h, kv := holding(t)
	lease, err := kv.etcd.cli.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	w := fencing.NewFencedWriter(h)
	for _, write := range []func() error{
		func() error { _, err := w.Put(t.Context(), "k", "v", clientv3.WithLease(lease.ID)); return err },
		func() error { _, err := w.Delete(t.Context(), "k", clientv3.WithRange("l")); return err },
		func() error {
			cmps, then, els := fencingtest.Compares(2), fencingtest.Puts(3), fencingtest.Puts(4)
			_, err := w.Txn(t.Context()).If(cmps...).Then(then...).Else(els...).Commit()
			return err
		},
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	sent := kv.committed
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
		t.Error("Txn does not pass on all that it was given")
	}
}

func ExampleFencedWriter_Txn() {
	srv := etcdfake.New(nil) // your etcd
	defer srv.Close()
	ctx := context.Background()
	sess, err := session.New(ctx, srv.Link().Client(), nil)
	if err != nil {
		panic(err)
	}
	defer sess.Close(ctx)

	err = locker.NewMutex(sess, "jobs/7").Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
		resp, err := fencing.NewFencedWriter(lk).Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision("jobs/7/done"), "=", 0)).
			Then(clientv3.OpPut("jobs/7/done", "true")).
			Else(clientv3.OpGet("jobs/7/done")).
			Commit()
		if err != nil {
			return err // fencing.ErrStale if the lock is lost
		}
		fmt.Println("was not done:", resp.Succeeded)
		return nil
	})
	fmt.Println(err)
	// Output:
	// was not done: true
	// <nil>
}
