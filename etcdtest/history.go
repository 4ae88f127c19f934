package etcdtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A Recorder records every change under a prefix, in etcd's own order.
type Recorder struct {
	store  *access
	client *clientv3.Client // of its own; closing it ends run
	prefix string
	done   chan struct{} // closed when run has returned

	mu       sync.Mutex // protects the rest
	events   []*clientv3.Event
	revision int64         // recorded so far
	advanced chan struct{} // closed when revision grows
	err      error         // why run has returned
}

// Record records all changes under prefix, including those before the call, until the test ends. Call it before the
// first compaction of the store.
func (a *access) Record(t testing.TB, prefix string) *Recorder {
	t.Helper()
	r, err := a.record(prefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.stop)
	return r
}

func (a *access) record(prefix string) (*Recorder, error) {
	cli, err := a.NewClient()
	if err != nil {
		return nil, err
	}
	r := &Recorder{
		store:    a,
		client:   cli,
		prefix:   prefix,
		done:     make(chan struct{}),
		revision: 1, // an empty store is at 1
		advanced: make(chan struct{}),
	}
	a.mu.Lock()
	a.recorders = append(a.recorders, r)
	a.mu.Unlock()
	go r.run() // joined by stop
	return r, nil
}

func (r *Recorder) stop() {
	r.store.mu.Lock()
	r.store.recorders = slices.DeleteFunc(r.store.recorders, func(other *Recorder) bool { return other == r })
	r.store.mu.Unlock()
	r.client.Close()
	<-r.done
}

// running returns the recorders that run.
func (a *access) running() []*Recorder {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.recorders)
}

// History returns all changes under prefix since the store was created; see [Recorder.Events]. It fails after a
// compaction: then use Record, before.
func (a *access) History(t testing.TB, prefix string) []*clientv3.Event {
	t.Helper()
	r, err := a.record(prefix)
	if err != nil {
		t.Fatal(err)
	}
	defer r.stop()
	return r.Events(t)
}

// Events returns every put and delete under the prefix, in etcd's order, including every write that was acknowledged
// before the call. Kv.ModRevision is the revision of the change, for a delete as well; PrevKv is the key before it.
func (r *Recorder) Events(t testing.TB) (events []*clientv3.Event) {
	t.Helper()
	r.store.do(t, "events", func(ctx context.Context, cli *clientv3.Client) error {
		revision, err := present(ctx, cli)
		if err != nil {
			return err
		}
		if err := r.wait(ctx, revision); err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		events = slices.Clone(r.events)
		return nil
	})
	return events
}

// run watches all keys, not only those under the prefix: then every revision has an event, which tells how far the
// recording is.
func (r *Recorder) run() {
	defer close(r.done)
	all := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithPrevKV()}
	for resp := range r.client.Watch(context.Background(), "", all...) {
		if err := resp.Err(); err != nil {
			r.mu.Lock()
			r.err = err
			r.mu.Unlock()
			return
		}
		r.add(resp.Events)
	}
}

func (r *Recorder) add(events []*clientv3.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ev := range events {
		if strings.HasPrefix(string(ev.Kv.Key), r.prefix) {
			r.events = append(r.events, ev)
		}
		r.revision = ev.Kv.ModRevision
	}
	close(r.advanced)
	r.advanced = make(chan struct{})
}

// wait waits until all changes up to revision are recorded.
func (r *Recorder) wait(ctx context.Context, revision int64) error {
	for {
		r.mu.Lock()
		have, advanced := r.revision, r.advanced
		r.mu.Unlock()
		if have >= revision {
			return nil
		}
		select {
		case <-advanced:
		case <-r.done:
			r.mu.Lock()
			defer r.mu.Unlock()
			return fmt.Errorf("recording of %q ended at revision %d: %w", r.prefix, r.revision, r.err)
		case <-ctx.Done():
			return fmt.Errorf("recorded up to revision %d of %d: %w", have, revision, ctx.Err())
		}
	}
}
