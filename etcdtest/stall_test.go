package etcdtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/etcdtest"
)

func TestStallHoldsUnaryRequests(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	link.Stall("Put", "DeleteRange")
	ctx, cancel := context.WithCancel(withTimeout(t))
	canceled := make(chan error, 1)
	go func() { // ends with ctx
		_, err := link.Client().Put(ctx, "given-up", "")
		canceled <- err
	}()
	done := put(t, link.Client(), "waited-for", "")
	if err := link.Wait(withTimeout(t), "Put", 2); err != nil {
		t.Fatal(err)
	}
	mustGet(t, link.Client(), "a") // reads pass
	cancel()
	if err := <-canceled; !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want Canceled", err)
	}
	if kvs := srv.Keys(t, ""); len(kvs) != 0 {
		t.Fatalf("the server has %v", kvs)
	}
	link.Heal()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	srv.WaitForKeys(t, "given-up", 1)
}

// The stall affects an open stream, but no unary calls.
func TestStalledRenewalsLetTheLeaseExpire(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	cli := link.Client()
	lease, err := cli.Grant(withTimeout(t), 3)
	if err != nil {
		t.Fatal(err)
	}
	renewals, err := cli.KeepAlive(t.Context(), lease.ID)
	if err != nil {
		t.Fatal(err)
	}
	<-renewals
	if _, err := cli.Put(withTimeout(t), "a", "", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	link.Stall("LeaseKeepAlive")
	sent := link.Count()["LeaseKeepAlive"]
	srv.WaitForKeys(t, "a", 0)
	mustPut(t, cli, "b", "")
	if err := link.Wait(withTimeout(t), "LeaseKeepAlive", sent+1); err != nil {
		t.Fatal(err)
	}
}

func TestStalledStreamContinuesAfterHeal(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	cli := link.Client()
	for _, revoked := range []bool{false, true} {
		lease, err := cli.Grant(withTimeout(t), 60)
		if err != nil {
			t.Fatal(err)
		}
		sent := link.Count()["LeaseKeepAlive"]
		link.Stall("LeaseKeepAlive") // the stream opens, but its message does not arrive
		renewed := make(chan error, 1)
		go func() { // ends after Heal
			_, err := cli.KeepAliveOnce(withTimeout(t), lease.ID)
			renewed <- err
		}()
		if err := link.Wait(withTimeout(t), "LeaseKeepAlive", sent+1); err != nil {
			t.Fatal(err)
		}
		for range 50 { // long enough to notice a leak
			mustPut(t, cli, "a", "")
		}
		select {
		case err := <-renewed:
			t.Fatalf("a stalled renewal returned %v", err)
		default:
		}
		if revoked {
			srv.Revoke(t, lease.ID)
		}
		link.Heal()
		if err := <-renewed; revoked != errors.Is(err, rpctypes.ErrLeaseNotFound) || !revoked && err != nil {
			t.Fatalf("revoked before it arrived: %v, renewal: %v", revoked, err)
		}
		if n := link.Count()["LeaseKeepAlive"] - sent; n != 1 {
			t.Fatalf("%d renewals sent, want 1", n)
		}
	}
}

func TestStalledWatchHoldsEvents(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	events := link.Client().Watch(t.Context(), "a", clientv3.WithCreatedNotify())
	<-events
	link.Stall("Watch")
	direct := srv.Client(t)
	for i := range 50 {
		mustPut(t, direct, "a", fmt.Sprint(i))
	}
	select {
	case resp := <-events:
		t.Fatalf("an event came: %v", resp)
	default:
	}
	link.Heal()
	var got []string
	for len(got) < 50 {
		for _, ev := range (<-events).Events {
			got = append(got, string(ev.Kv.Value))
		}
	}
	if got[0] != "0" || got[49] != "49" {
		t.Fatalf("events %v", got)
	}
}

func TestStreamCanceledWhileStalledEnds(t *testing.T) {
	t.Parallel()
	link := etcdtest.Start(t).Link(t)
	link.Stall("LeaseKeepAlive")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := link.Client().KeepAliveOnce(ctx, 42)
	// The server has a timeout, too.
	if !errors.Is(err, context.DeadlineExceeded) && status.Code(err) != codes.DeadlineExceeded {
		t.Fatalf("error %v, want DeadlineExceeded", err)
	}
}

func TestClientClosedWhileStalledLeavesNothingBehind(t *testing.T) {
	srv := etcdtest.Start(t)
	direct, link := srv.Client(t), srv.Link(t)
	mustPut(t, direct, "a", "")
	others := goleak.IgnoreCurrent()
	cli := link.Client()
	<-cli.Watch(t.Context(), "a", clientv3.WithCreatedNotify())
	link.Stall("Watch")
	for i := range 50 { // in this time the first event is received and held
		mustPut(t, direct, "a", fmt.Sprint(i))
	}
	cli.Close()
	goleak.VerifyNone(t, others) // while the link is open and stalled
}
