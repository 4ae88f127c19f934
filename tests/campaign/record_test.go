//go:build linux

package campaign

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/tests/internal/testkit"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// A history is etcd's history, with bounds of the time of each revision.
type history struct {
	clients []*clientv3.Client // one to each member

	mu      sync.Mutex                  // protects what follows
	changes map[int64][]*clientv3.Event // by revision
	seen    map[int64]time.Duration     // when a member first told of it: it was made before
	last    int64                       // all up to it are known
	probes  []linearizable
	starved []oracle.Fault              // when this process did not run
	slow    []oracle.Fault              // when a member answered slowly, for whatever reason
	stand   map[string]*mvccpb.KeyValue // by key; used by between
}

// A linearizable is a linearizable read. Revisions above that of its reply were made after it was sent.
type linearizable struct {
	revision int64
	sent     time.Duration
}

// watchHistory watches all keys from the first revision on, at each member.
func watchHistory(t *testing.T, cluster *etcdtest.Cluster) *history {
	t.Helper()
	h := &history{changes: make(map[int64][]*clientv3.Event), seen: make(map[int64]time.Duration), last: 1,
		stand: make(map[string]*mvccpb.KeyValue)}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, m := range cluster.Members() {
		cli := m.Client(t)
		h.clients = append(h.clients, cli)
		all.Go(func() { h.watch(ctx, cli) })
		all.Go(func() { h.probe(ctx, cli) })
	}
	all.Go(func() { h.beat(ctx) })
	t.Cleanup(func() { cancel(); all.Wait() })
	return h
}

func (h *history) watch(ctx context.Context, cli *clientv3.Client) {
	for from := int64(2); ctx.Err() == nil; {
		opts := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(from)}
		for resp := range cli.Watch(ctx, "", opts...) {
			now := sinceBoot()
			from = max(from, resp.CompactRevision)
			h.mu.Lock()
			revisions := make(map[int64][]*clientv3.Event)
			for _, ev := range resp.Events {
				revisions[ev.Kv.ModRevision] = append(revisions[ev.Kv.ModRevision], ev)
				from = ev.Kv.ModRevision + 1
			}
			for rev, events := range revisions {
				if h.changes[rev] == nil {
					h.changes[rev], h.seen[rev] = events, now
				}
			}
			for h.changes[h.last+1] != nil {
				h.last++
			}
			h.mu.Unlock()
		}
	}
}

func (h *history) probe(ctx context.Context, cli *clientv3.Client) {
	for ctx.Err() == nil {
		sent := sinceBoot()
		within, cancel := context.WithTimeout(ctx, time.Second)
		resp, err := cli.Get(within, "probe", clientv3.WithCountOnly())
		cancel()
		h.mu.Lock()
		if err == nil {
			h.probes = append(h.probes, linearizable{resp.Header.Revision, sent})
		}
		if now := sinceBoot(); now-sent > busy {
			h.slow = append(h.slow, oracle.Fault{Process: oracle.Everywhere, From: sent, To: now})
		}
		h.mu.Unlock()
		pauseFor(ctx, 50*time.Millisecond)
	}
}

// tooBusy returns when the machine was too busy for a judgment: this process did not run, or a member was slow though
// the cluster had no fault. It is called with mu held.
func (h *history) tooBusy(faults []oracle.Fault) []oracle.Fault {
	all := slices.Clone(h.starved)
	for _, slow := range h.slow {
		if !slices.ContainsFunc(faults, func(f oracle.Fault) bool {
			return f.Process == "" && f.From < slow.To && f.To > slow.From
		}) {
			all = append(all, slow)
		}
	}
	return all
}

// busy is for how long this process does not run, or a member does not answer, when the machine is too busy for a
// judgment.
const busy = 250 * time.Millisecond

// beat notices when the machine is so busy that this process, which has the connections of the others, does not run.
func (h *history) beat(ctx context.Context) {
	for last := sinceBoot(); ctx.Err() == nil; {
		pauseFor(ctx, 20*time.Millisecond)
		now := sinceBoot()
		if now-last > busy {
			h.mu.Lock()
			h.starved = append(h.starved, oracle.Fault{Process: oracle.Everywhere, From: last, To: now})
			h.mu.Unlock()
		}
		last = now
	}
}

// complete returns the revision up to which all changes are known.
func (h *history) complete() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// revision returns the present revision when all changes up to it are known.
func (h *history) revision(t *testing.T) (rev int64) {
	t.Helper()
	testkit.Eventually(t, "all changes are known", func() bool {
		within, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		resp, err := h.clients[0].Get(within, "probe")
		if err == nil {
			rev = resp.Header.Revision
		} else if errors.Is(err, rpctypes.ErrCompacted) {
			t.Fatal(err)
		}
		return err == nil && h.complete() >= rev
	})
	return rev
}

// notBefore returns a time before which a revision was not made. It is called with mu held.
func (h *history) notBefore(rev int64) (at time.Duration) {
	for _, p := range h.probes {
		if p.revision < rev {
			at = max(at, p.sent)
		}
	}
	return at
}

// between returns the changes after a revision up to another one.
func (h *history) between(from, to int64) (all []oracle.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for rev := from + 1; rev <= to; rev++ {
		after := h.notBefore(rev)
		for _, ev := range h.changes[rev] {
			key := string(ev.Kv.Key)
			c := oracle.Change{Revision: rev, Deleted: ev.Type == clientv3.EventTypeDelete, Kv: ev.Kv, Prev: h.stand[key],
				After: after, Before: h.seen[rev]}
			all = append(all, c)
			if h.stand[key] = ev.Kv; c.Deleted {
				delete(h.stand, key)
			}
		}
	}
	return all
}
