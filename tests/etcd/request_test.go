package etcd_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// A renewal uses the present auth token: a login costs a Raft entry and a bcrypt comparison, and may go to a member
// that hangs.
func TestRenewalsDoNotLogIn(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	admin := srv.Client(t)
	for _, err := range []error{
		second(admin.RoleAdd(ctx, "root")), second(admin.UserAdd(ctx, "root", "secret")),
		second(admin.UserGrantRole(ctx, "root", "root")), second(admin.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	link := srv.Link(t)
	for _, prefix := range []string{"", "tenant/"} {
		cli, err := clientv3.New(clientv3.Config{
			Endpoints: link.Endpoints(), DialOptions: link.DialOptions(), Username: "root", Password: "secret",
			Logger: zap.NewNop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cli.Close() })
		if prefix != "" {
			cli.KV, cli.Lease = namespace.NewKV(cli.KV, prefix), namespace.NewLease(cli.Lease, prefix)
			cli.Watcher = namespace.NewWatcher(cli.Watcher, prefix)
		}
		events, armed := newRecorder(), link.Count()["Watch"]
		sess, err := session.New(ctx, cli, quiet(session.Options{TTL: 2 * time.Second, OnStateChange: events.tell}))
		if err != nil {
			t.Fatal(err)
		}
		// Each stream logs in, also that of the session key's watch.
		if err := link.Wait(ctx, "Watch", armed+1); err != nil {
			t.Error(err)
		}
		before := link.Count()
		if err := link.Wait(ctx, "LeaseKeepAlive", before["LeaseKeepAlive"]+4); err != nil {
			t.Error(err)
		}
		// The watch of the session key may be late.
		if sent := link.Count().Since(before); sent["Authenticate"] != sent["Watch"] {
			t.Errorf("with the prefix %q: %v", prefix, sent)
		}
		if err := sess.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

// If the client's Lease was replaced, requests about leases go through the replacement.
func TestReplacedLeaseOfTheClientIsUsed(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	calls := make(chan string, 100)
	cli.Lease = tracedLease{cli.Lease, calls}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sess, err := session.New(ctx, cli, quiet(session.Options{TTL: 2 * time.Second}))
	if err != nil {
		t.Fatal(err)
	}
	next := func() string {
		select {
		case call := <-calls:
			return call
		case <-ctx.Done():
			return "nothing"
		}
	}
	call := next()
	if call != "Grant" {
		t.Errorf("called %s first", call)
	}
	for call == "Grant" { // one that is slow is sent again
		call = next()
	}
	if call != "KeepAliveOnce" {
		t.Errorf("called %s after Grant", call)
	}
	if err := sess.Close(ctx); err != nil {
		t.Error(err)
	}
}

type tracedLease struct {
	clientv3.Lease
	calls chan<- string
}

func (l tracedLease) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	l.calls <- "Grant"
	return l.Lease.Grant(ctx, ttl)
}

func (l tracedLease) KeepAliveOnce(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	l.calls <- "KeepAliveOnce"
	return l.Lease.KeepAliveOnce(ctx, id)
}

func second[T any](_ T, err error) error { return err }
