package etcdfence_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/internal/testkit/fencingtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

func TestEmptyKeyInATransactionIsRefused(t *testing.T) {
	h, kv := holding(t)
	w := etcdfence.NewWriter(h)
	for name, txn := range map[string]clientv3.Txn{
		"if":     w.Txn(t.Context()).If(clientv3.Compare(clientv3.Version(""), "=", 0)),
		"then":   w.Txn(t.Context()).Then(clientv3.OpPut("a", "v"), clientv3.OpPut("", "v")),
		"else":   w.Txn(t.Context()).Then(clientv3.OpPut("a", "v")).Else(clientv3.OpDelete("")),
		"zero":   w.Txn(t.Context()).Then(clientv3.Op{}),
		"nested": w.Txn(t.Context()).Then(clientv3.OpTxn(nil, nil, []clientv3.Op{clientv3.OpGet("")})),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := txn.Commit()
			refused(t, kv, err)
			if !errors.As(err, new(*holdfast.ArgumentError)) {
				t.Errorf("error is %v", err)
			}
		})
	}
}

func TestMethodsOfATransactionAddInAnyOrder(t *testing.T) {
	h, kv := holding(t)
	absent, held := clientv3.Compare(clientv3.CreateRevision("absent"), "=", 0), h.Holding()
	then := []clientv3.Op{clientv3.OpPut("a", "v")}
	txn := etcdfence.NewWriter(h).Txn(t.Context()).Else(clientv3.OpPut("c", "v")).Then(then...)
	then[0] = clientv3.OpPut("other", "v") // the transaction has a copy
	resp, err := txn.If(absent).Then(clientv3.OpPut("b", "v")).If(held...).Commit()
	if err != nil || !resp.Succeeded {
		t.Fatalf("%v, %v", resp, err)
	}
	for key, want := range map[string]int{"a": 1, "b": 1, "c": 0, "other": 0} {
		if got := len(kv.etcd.Keys(key)); got != want {
			t.Errorf("%s: %d keys", key, got)
		}
	}
}

func TestTooManyOperationsAreRefused(t *testing.T) {
	for _, c := range fencingtest.Limits {
		t.Run(c.Name, func(t *testing.T) {
			h, kv := holding(t)
			_, err := etcdfence.NewWriter(h).Txn(t.Context()).If(c.Cmps...).Then(c.Then...).Else(c.Els...).Commit()
			if !c.OK {
				refused(t, kv, err)
			}
			if c.OK != (err == nil) || !c.OK && !errors.As(err, new(*holdfast.ArgumentError)) {
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
	w := etcdfence.NewWriter(h)
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

func ExampleWriter_Txn() {
	srv := etcdfake.New(etcdfake.Options{}) // your etcd
	defer srv.Close()
	ctx := context.Background()
	sess, err := session.New(ctx, srv.Link().Client(), session.Options{})
	if err != nil {
		panic(err)
	}
	defer sess.Close(ctx)

	err = locker.NewMutex(sess, "jobs/7").Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
		resp, err := etcdfence.NewWriter(lk).Txn(ctx).
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
