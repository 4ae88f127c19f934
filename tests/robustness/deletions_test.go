package robustness

import (
	"context"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ends are the times at which entries were seen to be deleted, not before they
// were.
type ends struct {
	mu   sync.Mutex // protects seen
	seen map[string]chan time.Time
}

func recordEnds(t *testing.T, cli *clientv3.Client) *ends {
	t.Helper()
	e := &ends{seen: make(map[string]chan time.Time)}
	ctx, stop := context.WithCancel(context.Background())
	events := cli.Watch(ctx, "holdfast/", clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	<-events
	done := make(chan struct{})
	go func() { // joined in Cleanup
		defer close(done)
		for resp := range events {
			for _, ev := range resp.Events {
				select {
				case e.of(string(ev.Kv.Key)) <- time.Now():
				default:
				}
			}
		}
	}()
	t.Cleanup(func() { stop(); <-done })
	return e
}

// of receives the end of one entry.
func (e *ends) of(key string) chan time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.seen[key] == nil {
		e.seen[key] = make(chan time.Time, 1)
	}
	return e.seen[key]
}
