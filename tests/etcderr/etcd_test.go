package etcderr_test

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

// This is why ErrNoSpace is of class Unknown: a write that was accepted before the quota was exhausted, and exceeds
// it when it is applied, is carried out and answered with that error. To see it takes several writes at once, since
// a single one is usually refused when it arrives; and several stores, since a member that applies faster than
// writes arrive refuses all of them.
func TestWriteRefusedForLackOfSpaceMayHaveBeenDone(t *testing.T) {
	for range 50 {
		srv := etcdtest.Start(t, etcdtest.Options{Configure: func(c *embed.Config) { c.QuotaBackendBytes = 1 << 20 }})
		cli := srv.Client(t)
		value := strings.Repeat("x", 8<<10)
		var wg sync.WaitGroup
		var mu sync.Mutex
		var refused []string
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
					refused = append(refused, key)
					return
				}
			})
		}
		wg.Wait()
		for _, key := range refused {
			if len(srv.Keys(t, key)) > 0 {
				testNoSpaceAlarm(t, cli)
				return
			}
		}
	}
	t.Error("nothing was written that etcd said it had no space for: the class of ErrNoSpace can be Permanent")
}

// Once the alarm is raised, etcd accepts only deletions.
func testNoSpaceAlarm(t *testing.T, cli *clientv3.Client) {
	if _, err := cli.Txn(t.Context()).Then(clientv3.OpDelete("0/0")).Commit(); err != nil {
		t.Errorf("a transaction that deletes: %v", err)
	}
	_, err := cli.Txn(t.Context()).Then(clientv3.OpDelete("1/0"), clientv3.OpPut("void", "")).Commit()
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a transaction that deletes and puts: %v", err)
	}
}
