// Package testkit has what all tests against a real etcd need.
package testkit

import (
	"context"
	"flag"
	"log/slog"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	"github.com/holdfast-go/holdfast/session"
)

// Main runs the tests of a package that mostly wait, for etcd and for leases to end: more of them side by side than
// there are processors. The flag -parallel decides otherwise.
func Main(m *testing.M) {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	leak.Main(m)
}

// TTL is that of sessions without one of their own. A machine that is busy with other tests does not use it up.
const TTL = time.Minute

// Open starts a session and closes it with the test, whether its link is healed or not. Without a Logger it logs
// nothing.
func Open(t testing.TB, cli *clientv3.Client, o session.Options) *session.Session {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.TTL == 0 {
		o.TTL = TTL
	}
	sess, err := session.New(Deadline(t), cli, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = sess.Close(ctx)
	})
	return sess
}

// Deadline returns a context for calls that end much sooner. A test that reaches its end has failed.
func Deadline(t testing.TB) context.Context { return Within(t, 3*time.Minute) }

// Within returns a context with a timeout, which is canceled with the test.
func Within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// Eventually polls until ok returns true, for conditions that have no event to wait for.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ctx := Deadline(t); !ok(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// UntilHeld returns a context that is canceled when the request is held, so that the call that sent it gets no reply.
func UntilHeld(t testing.TB, held *etcdtest.Held) context.Context {
	ctx, cancel := context.WithCancel(Deadline(t))
	go func() { // ends by the deadline, or with the test
		defer cancel()
		select {
		case <-held.Arrived():
		case <-ctx.Done():
		}
	}()
	return ctx
}

// MustSucceed fails the test at once if there is an error.
func MustSucceed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// CreateRevision returns the create revision of a key, which must exist.
func CreateRevision(t testing.TB, cli *clientv3.Client, key string) int64 {
	t.Helper()
	resp, err := cli.Get(Deadline(t), key)
	if err != nil || len(resp.Kvs) != 1 {
		t.Errorf("%s: %v, %v", key, resp, err)
		return 0
	}
	return resp.Kvs[0].CreateRevision
}

// Unrecorded is an auditor for requests that tests look at by their effects.
var Unrecorded = audit.Func(func(context.Context, audit.Record) {})

// IsTxnThatDeletes matches a Txn that deletes a key if its comparisons are true.
func IsTxnThatDeletes(request any) bool {
	txn, ok := request.(*pb.TxnRequest)
	return ok && slices.ContainsFunc(txn.Success, func(op *pb.RequestOp) bool { return op.GetRequestDeleteRange() != nil })
}
