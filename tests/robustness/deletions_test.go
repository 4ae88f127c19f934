package robustness

import (
	"context"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// deletions holds the time at which a watch reported the deletion of each entry.
// It is never earlier than the deletion.
type deletions struct {
	mu   sync.Mutex // protects seen
	seen map[string]chan time.Time
}

func recordDeletions(t *testing.T, cli *clientv3.Client) *deletions {
	t.Helper()
	d := &deletions{seen: make(map[string]chan time.Time)}
	ctx, stop := context.WithCancel(context.Background())
	events := cli.Watch(ctx, "holdfast/", clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	<-events
	done := make(chan struct{})
	go func() { // joined in Cleanup
		defer close(done)
		for resp := range events {
			for _, ev := range resp.Events {
				select {
				case d.of(string(ev.Kv.Key)) <- time.Now():
				default:
				}
			}
		}
	}()
	t.Cleanup(func() { stop(); <-done })
	return d
}

// of returns the channel that receives the time at which key was deleted.
func (d *deletions) of(key string) chan time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.seen[key] == nil {
		d.seen[key] = make(chan time.Time, 1)
	}
	return d.seen[key]
}
