//go:build linux

package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/tests/oracle"
)

// A history is etcd's history, with bounds of the time of each revision.
type history struct {
	clients []*clientv3.Client // one to each member
	cancel  context.CancelFunc // ends all
	all     sync.WaitGroup

	mu        sync.Mutex                  // protects what follows
	changes   map[int64][]*clientv3.Event // by revision
	seen      map[int64]time.Duration     // when a member first told of it: it was made before
	last      int64                       // all up to it are known
	sparse    bool                        // others use revisions, too
	missed    bool                        // others have compacted changes that are not known
	forgotten int64                       // all up to it have been judged
	probes    []linearizable
	starved   []oracle.Fault              // when this process did not run
	slow      []oracle.Fault              // when a member answered slowly, for whatever reason
	stand     map[string]*mvccpb.KeyValue // by key; used by between
}

// A linearizable is a linearizable read. Revisions above that of its reply were made after it was sent.
type linearizable struct {
	revision int64
	sent     time.Duration
}

// watchHistory watches all keys from the first revision on, at each member; on the user's etcd from now on.
func watchHistory(ctx context.Context, on target) (_ *history, err error) {
	h := &history{changes: make(map[int64][]*clientv3.Event), seen: make(map[int64]time.Duration), last: 1,
		stand: make(map[string]*mvccpb.KeyValue), sparse: on.foreign()}
	h.clients, err = on.eachMember()
	if err == nil && h.sparse {
		h.last, err = h.put(ctx)
	}
	ctx, h.cancel = context.WithCancel(context.Background())
	if err != nil {
		h.close()
		return nil, err
	}
	for _, cli := range h.clients {
		h.all.Go(func() { h.watch(ctx, cli, h.last+1) })
		h.all.Go(func() { h.probe(ctx, cli) })
	}
	h.all.Go(func() {
		beat(ctx, busy, func(f oracle.Fault) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.starved = append(h.starved, f)
		})
	})
	return h, nil
}

// put puts a key, and returns at which revision.
func (h *history) put(ctx context.Context) (rev int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	resp, err := h.clients[0].Put(ctx, "probe", "")
	if err != nil {
		return 0, err
	}
	return resp.Header.Revision, nil
}

func (h *history) close() {
	h.cancel()
	h.all.Wait()
	for _, cli := range h.clients {
		_ = cli.Close() // says that it is canceled
	}
}

func (h *history) watch(ctx context.Context, cli *clientv3.Client, from int64) {
	for ctx.Err() == nil {
		opts := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(from)}
		for resp := range cli.Watch(ctx, "", opts...) {
			now := sinceBoot()
			from = max(from, resp.CompactRevision)
			h.mu.Lock()
			h.missed = h.missed || resp.CompactRevision > h.last+1
			revisions := make(map[int64][]*clientv3.Event)
			for _, ev := range resp.Events {
				revisions[ev.Kv.ModRevision] = append(revisions[ev.Kv.ModRevision], ev)
				from = ev.Kv.ModRevision + 1
			}
			for rev, events := range revisions {
				if h.changes[rev] == nil && rev > h.forgotten {
					h.changes[rev], h.seen[rev] = events, now
				}
			}
			for h.changes[h.last+1] != nil {
				h.last++
			}
			if h.sparse { // a watch tells all changes in their order
				h.last = max(h.last, from-1)
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
			return (f.Process == "" || f.Process == oracle.Everywhere) && f.From < slow.To && f.To > slow.From
		}) {
			all = append(all, slow)
		}
	}
	return all
}

// busy is for how long this process does not run, or a member does not answer, when the machine is too busy for a
// judgment.
const busy = 250 * time.Millisecond

// beat reports when this process did not run for longer than that. The judge has the connections of the others.
func beat(ctx context.Context, longest time.Duration, report func(oracle.Fault)) {
	for last := sinceBoot(); ctx.Err() == nil; {
		pauseFor(ctx, 20*time.Millisecond)
		now := sinceBoot()
		if now-last > longest {
			report(oracle.Fault{Process: oracle.Everywhere, From: last, To: now})
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
func (h *history) revision(ctx context.Context) (rev int64, err error) {
	err = eventually(ctx, "all changes are known", func() bool {
		if rev == 0 {
			rev, _ = h.put(ctx)
		}
		return rev != 0 && h.complete() >= rev
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.missed {
		return rev, errors.New("another client has compacted etcd's history before the campaign had read it")
	}
	return rev, err
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

// forget drops what is only needed for a judgment of changes up to a revision.
func (h *history) forget(upTo int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.changes, func(rev int64, _ []*clientv3.Event) bool { return rev <= upTo })
	maps.DeleteFunc(h.seen, func(rev int64, _ time.Duration) bool { return rev <= upTo })
	if n := len(h.probes); n > keptProbes {
		h.probes = slices.Clone(h.probes[n-keptProbes:])
	}
	h.starved, h.slow, h.forgotten = nil, nil, upTo
}

// keptProbes bound the times of the first changes that come next.
const keptProbes = 1000

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
