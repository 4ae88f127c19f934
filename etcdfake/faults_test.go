package etcdfake_test

import (
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
)

func TestDeposedLeaderAcknowledgesRenewalsWithoutEffect(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		cli := link.Client()
		lease, err := cli.Grant(t.Context(), 5)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		srv.ChangeLeader(3 * time.Second) // a full TTL from now
		time.Sleep(2 * time.Second)
		renewal, err := cli.KeepAliveOnce(t.Context(), lease.ID)
		if err != nil || renewal.TTL != 5 {
			t.Fatalf("%v, %v", renewal, err)
		}
		read, err := cli.Get(t.Context(), "k")
		if err != nil || read.Header.RaftTerm != renewal.RaftTerm+1 {
			t.Errorf("renewal at term %d, read at %v, %v", renewal.RaftTerm, read.Header, err)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if left, err := cli.TimeToLive(t.Context(), lease.ID); err != nil || left.TTL != -1 {
			t.Errorf("the lease has %v left, %v", left, err)
		}
	})
}

func TestClusterWithoutALeader(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		cli := link.Client()
		lease, err := cli.Grant(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		requiring := cli.Watch(clientv3.WithRequireLeader(t.Context()), "k")
		other := cli.Watch(t.Context(), "k")
		srv.LoseLeader()
		if _, err := cli.Put(t.Context(), "k", ""); err != rpctypes.ErrTimeout {
			t.Errorf("put: %v", err)
		}
		if resp := <-requiring; resp.Err() != rpctypes.ErrNoLeader {
			t.Errorf("watch that requires a leader: %+v", resp)
		}
		if _, err := cli.Get(t.Context(), "k", clientv3.WithSerializable()); err != nil {
			t.Errorf("serializable read: %v", err)
		}
		time.Sleep(time.Minute)
		srv.ChangeLeader(0)
		if _, err := cli.Put(t.Context(), "k", "", clientv3.WithLease(lease.ID)); err != nil {
			t.Errorf("a lease has expired without a leader: %v", err)
		}
		if resp := <-other; len(resp.Events) != 1 {
			t.Errorf("watch: %+v", resp)
		}
	})
}

func TestSkipAdvancesOnlyTheServersTime(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		cli := link.Client()
		lease, err := cli.Grant(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cli.Put(t.Context(), "k", "", clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
		srv.Skip(9 * time.Second)
		if len(srv.Keys("k")) != 1 {
			t.Error("the lease has expired early")
		}
		srv.Skip(time.Second)
		if h := srv.History("k"); len(h) != 2 || h[1].Cause != etcdfake.ByExpiry {
			t.Errorf("history %+v", h)
		}
	})
}
