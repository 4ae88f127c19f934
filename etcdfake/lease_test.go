package etcdfake_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
)

func TestLeaseExpiresExactlyAtItsTTL(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		cli := link.Client()
		lease, err := cli.Grant(t.Context(), 5)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cli.Put(t.Context(), "k", "v", clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if _, err := cli.KeepAliveOnce(t.Context(), lease.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5*time.Second - time.Nanosecond)
		if len(srv.Keys("k")) != 1 {
			t.Error("the lease has expired early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if len(srv.Keys("k")) != 0 {
			t.Error("the key has outlived its lease")
		}
		if _, err := cli.KeepAliveOnce(t.Context(), lease.ID); err != rpctypes.ErrLeaseNotFound {
			t.Errorf("renewal of an expired lease: %v", err)
		}
	})
}

func TestKeepAliveRenewsUntilTheClientCloses(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		cli := link.Client()
		lease, err := cli.Grant(t.Context(), 5)
		if err != nil {
			t.Fatal(err)
		}
		answers, err := cli.KeepAlive(t.Context(), lease.ID)
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if resp := <-answers; resp == nil || resp.TTL != 5 {
				t.Fatalf("renewal: %v", resp)
			}
		}
		if err := cli.Close(); err != context.Canceled {
			t.Errorf("Close: %v", err)
		}
		for range answers {
		}
		if _, err := cli.Get(soon(t, time.Second), "k"); err == nil {
			t.Error("a closed client still works")
		}
	})
}
