package etcdtest

import (
	"context"
	"fmt"
	"maps"
	"sync"
)

// Counts are numbers of RPCs by method, such as "Txn", "Range" or "LeaseKeepAlive".
type Counts map[string]int

// Since returns the difference between c and earlier counts.
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
	mu      sync.Mutex // protects counts, changed
	counts  Counts
	changed chan struct{} // closed at the next RPC; nil until get needs it
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

// Count returns how many RPCs the clients of the link have sent so far. Each attempt counts, even if a fault loses or
// holds it; in the streams of Watch and LeaseKeepAlive each message to the server.
func (l *Link) Count() Counts {
	counts, _ := l.rpcs.counter.get()
	return counts
}

// Wait waits until Count()[method] is at least n. If ctx ends first, it returns the cause.
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
			return fmt.Errorf("etcdtest: saw %d of %d %s: %w", have, n, method, context.Cause(ctx))
		}
	}
}
