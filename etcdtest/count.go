package etcdtest

import (
	"context"
	"fmt"
	"maps"
	"sync"
)

// Counts says how many RPCs there were, by method: "Txn", "Range", "LeaseKeepAlive".
type Counts map[string]int

// Since returns the RPCs of c that were not in earlier.
func (c Counts) Since(earlier Counts) Counts {
	d := make(Counts)
	for method, n := range c {
		if n -= earlier[method]; n != 0 {
			d[method] = n
		}
	}
	return d
}

// Total returns the number of RPCs of all methods.
func (c Counts) Total() (n int) {
	for _, m := range c {
		n += m
	}
	return n
}

// counter counts RPCs.
type counter struct {
	mu      sync.Mutex // protects what follows
	counts  Counts
	changed chan struct{} // closed at the next RPC; nil while nobody has asked for it
}

func (c *counter) add(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = make(Counts)
	}
	c.counts[method]++
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

func (c *counter) get() (Counts, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return maps.Clone(c.counts), c.changed
}

// Count returns how many RPCs the clients of the link have sent so far. Each attempt counts, also if it was then lost or
// held. In streams (Watch, LeaseKeepAlive) each message to the server counts, not the stream.
func (l *Link) Count() Counts {
	counts, _ := l.rpcs.counter.get()
	return counts
}

// Wait waits until Count()[method] is at least n. It returns the cause when ctx ends before.
func (l *Link) Wait(ctx context.Context, method string, n int) error {
	for {
		counts, changed := l.rpcs.counter.get()
		have := counts[mustKnow(method)]
		if have >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("etcdtest: %d of %d %s: %w", have, n, method, context.Cause(ctx))
		}
	}
}
