package shard_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/shard"
)

// sharing is a way to share the shards "orders". It calls own when the process begins to own one, and what that returns
// when it ends, until ctx ends.
type sharing func(ctx context.Context, sess *session.Session, name string, own func(index int) func())

// byLocks is what people do without this package: each process asks for the lock of every shard, and keeps what it
// gets.
func byLocks(n int) sharing {
	return func(ctx context.Context, sess *session.Session, _ string, own func(index int) func()) {
		var all sync.WaitGroup
		for index := range n {
			all.Go(func() {
				mu := locker.NewMutex(sess, fmt.Sprint("orders/", index))
				_ = mu.Do(ctx, func(ctx context.Context, _ *locker.Lock) error { // an error says that ctx has ended
					defer own(index)()
					<-ctx.Done()
					return nil
				})
			})
		}
		all.Wait()
	}
}

func byShards(n int) sharing {
	return func(ctx context.Context, sess *session.Session, name string, own func(index int) func()) {
		all := shard.New(sess, "orders", n).With(shard.Options{Member: name})
		_ = all.Run(ctx, func(ctx context.Context, s *shard.Shard) error { // likewise
			defer own(s.Index())()
			<-ctx.Done()
			return nil
		})
	}
}

// shared is how shards are shared a while after something has happened.
type shared struct {
	largest, smallest int           // loads
	balanced          time.Duration // until all shards were owned and loads within one; -1: never
	moved             int
	requests          int // transactions, reads and watches that were sent
	keys              int // in etcd
}

// String returns the row that -v prints.
func (s shared) String() string {
	balanced := "never"
	if s.balanced >= 0 {
		balanced = s.balanced.Round(10 * time.Millisecond).String()
	}
	return fmt.Sprintf("%d to %d | %s | %d | %d | %d", s.smallest, s.largest, balanced, s.moved, s.requests, s.keys)
}

// comparison has processes that share shards in one way.
type comparison struct {
	t   *testing.T
	srv *etcdfake.Server
	n   int
	way sharing
	all []*running // that are there

	mu     sync.Mutex // protects what follows
	owners map[int]string
	moved  int
}

func (c *comparison) start(name string) {
	r := &running{Process: kit.Start(c.t, c.srv), name: name}
	r.Plan(nil)
	var ctx context.Context
	ctx, r.leave = context.WithCancel(context.Background())
	done := make(chan struct{})
	r.done = done
	own := func(index int) func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.owners[index] = name
		c.moved++
		return func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.owners[index] == name {
				delete(c.owners, index)
			}
		}
	}
	go func() { // joined by the cleanup
		defer close(done)
		c.way(ctx, r.Sess, name, own)
	}()
	c.t.Cleanup(r.stop)
	c.all = append(c.all, r)
}

func (c *comparison) loads() (largest, smallest, owned int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := make(map[string]int)
	for _, owner := range c.owners {
		of[owner]++
	}
	smallest = c.n
	for _, r := range c.all {
		largest, smallest, owned = max(largest, of[r.name]), min(smallest, of[r.name]), owned+of[r.name]
	}
	return largest, smallest, owned
}

// requests returns what those that are there have sent.
func (c *comparison) requests() map[*running]int {
	all := make(map[*running]int)
	for _, r := range c.all {
		for _, n := range r.shared() {
			all[r] += n
		}
	}
	return all
}

// after has something happen, and says what has become of it 20 s later.
func (c *comparison) after(happen func()) (s shared) {
	began, sent, moved := time.Now(), c.requests(), c.moved
	happen()
	s.balanced = -1
	for time.Since(began) < 20*time.Second {
		time.Sleep(20 * time.Millisecond)
		var owned int
		s.largest, s.smallest, owned = c.loads()
		switch even := owned == c.n && s.largest-s.smallest <= 1; {
		case !even:
			s.balanced = -1
		case s.balanced < 0:
			s.balanced = time.Since(began)
		}
	}
	for r, n := range c.requests() {
		s.requests += n - sent[r]
	}
	s.moved, s.keys = c.moved-moved, len(c.srv.Keys("holdfast/"))
	return s
}

func (c *comparison) run(m int) (all []shared) {
	return []shared{
		c.after(func() {
			for i := range m {
				c.start(fmt.Sprint("orders-", i))
				time.Sleep(100 * time.Millisecond)
			}
		}),
		c.after(func() { c.start(fmt.Sprint("orders-", m)) }),
		c.after(func() {
			first := c.all[0]
			first.Link.BlackHole()
			c.all = c.all[1:]
		}),
	}
}

func TestSharesAreEvenWhereLocksAloneAreNot(t *testing.T) {
	n, m := size()
	compare := func(way sharing) (all []shared) {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			c := &comparison{t: t, srv: srv, n: n, way: way, owners: make(map[int]string)}
			all = c.run(m)
		})
		return all
	}
	alone, shards := compare(byLocks(n)), compare(byShards(n))
	t.Logf("%d shards", n)
	t.Log("| | | loads | even after | moves | requests | keys in etcd |")
	for i, what := range []string{fmt.Sprint(m, " processes start"), "one more starts", "the first one dies"} {
		t.Logf("| %s | locks alone | %v |", what, alone[i])
		t.Logf("| | package `shard` | %v |", shards[i])
		if s := alone[i]; s.largest != n || s.smallest != 0 || s.balanced >= 0 {
			t.Errorf("%s: by locks alone: %+v", what, s)
		}
		if s, a := shards[i], alone[i]; s.largest-s.smallest > 1 || s.balanced < 0 || s.requests >= a.requests ||
			2*s.keys > a.keys {
			t.Errorf("%s: %+v, by locks alone: %+v", what, s, alone[i])
		}
	}
}
