package fencing_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
)

// Replicas share nothing but etcd, whose history shows what landed.
func TestNoStaleCommitLandsAmongManyReplicas(t *testing.T) {
	const writers, rounds = 16, 25
	srv := etcdtest.Start(t)
	var replicas []*fencing.EtcdMarks
	for range 2 {
		m, err := fencing.NewEtcdMarks(srv.Client(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		replicas = append(replicas, m)
	}
	var newest, refused, landed atomic.Int64
	newest.Store(1)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for range rounds {
				token := newest.Load()
				if w%4 == 0 {
					token = newest.Add(1)
				} else {
					token = max(1, token-rand.Int64N(3))
				}
				put := clientv3.OpPut("k", fmt.Sprint(token))
				_, err := replicas[w%2].Commit(t.Context(), "r", claim(token), put)
				switch {
				case errors.Is(err, fencing.ErrStale):
					refused.Add(1)
				case err != nil:
					t.Error(err)
				default:
					landed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	history, last := srv.History(t, "k"), 0
	for _, ev := range history {
		token, err := strconv.Atoi(string(ev.Kv.Value))
		if err != nil || token < last {
			t.Fatalf("%s landed after %d", ev.Kv.Value, last)
		}
		last = token
	}
	if len(history) != int(landed.Load()) || landed.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d landed, %d in etcd's history, %d refused", landed.Load(), len(history), refused.Load())
	}
}
