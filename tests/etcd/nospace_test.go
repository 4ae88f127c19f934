package etcd_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/etcdtest"
)

// ErrNoSpace is of class Unknown because etcd may apply a write and still return it: the write was accepted before the
// quota was exhausted, and exceeded it when it was applied. That needs concurrent writes, because etcd usually rejects
// a single one on arrival. And it needs several attempts, because a member that applies faster than writes arrive
// rejects them all on arrival.
func TestWriteRejectedWithErrNoSpaceMayHaveBeenApplied(t *testing.T) {
	for range 50 {
		srv := etcdtest.Start(t, etcdtest.Options{Configure: func(c *embed.Config) { c.QuotaBackendBytes = 1 << 20 }})
		cli := srv.Client(t)
		value := strings.Repeat("x", 8<<10)
		var wg sync.WaitGroup
		var mu sync.Mutex
		var rejected []string
		for writer := range 32 {
			wg.Go(func() {
				for n := 0; ; n++ {
					key := fmt.Sprintf("%d/%d", writer, n)
					_, err := cli.Put(t.Context(), key, value)
					if err == nil {
						continue
					}
					if !errors.Is(err, rpctypes.ErrNoSpace) || etcderr.Classify(err) != etcderr.Unknown || etcderr.Retryable(err) {
						t.Errorf("put %s: %v", key, err)
					}
					mu.Lock()
					defer mu.Unlock()
					rejected = append(rejected, key)
					return
				}
			})
		}
		wg.Wait()
		for _, key := range rejected {
			if len(srv.Keys(t, key)) > 0 {
				testNoSpaceAlarm(t, cli)
				return
			}
		}
	}
	t.Error("etcd applied no write that it rejected with ErrNoSpace: its class can be Permanent")
}

// testNoSpaceAlarm tests that etcd accepts only deletions after it has raised the alarm.
func testNoSpaceAlarm(t *testing.T, cli *clientv3.Client) {
	if _, err := cli.Txn(t.Context()).Then(clientv3.OpDelete("0/0")).Commit(); err != nil {
		t.Errorf("Txn that deletes: %v", err)
	}
	_, err := cli.Txn(t.Context()).Then(clientv3.OpDelete("1/0"), clientv3.OpPut("void", "")).Commit()
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("Txn that deletes and puts: %v", err)
	}
}
