package shard_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/shard"
)

func TestMain(m *testing.M) { leak.Main(m) }

const (
	entries = "holdfast/shard/orders/"
	members = "holdfast/member/shard/orders/@/"
	count   = "holdfast/shard/orders/@count"
	settle  = 3 * time.Second // the default
	settled = settle + 5*time.Second
)

// fleet is several members, and what their functions see.
type fleet struct {
	t   *testing.T
	srv *etcdfake.Server
	n   int

	mu    sync.Mutex // protects what follows
	owner map[int]string
	begun map[int]int // how often each shard's function was called
	last  map[int]holdfast.Token

	freed   map[int]time.Time // when the shard's function has returned
	longest time.Duration     // for which a shard had no owner
	latest  time.Time         // when a function was called last
}

func newFleet(t *testing.T, srv *etcdfake.Server, n int) *fleet {
	return &fleet{
		t: t, srv: srv, n: n, owner: make(map[int]string), begun: make(map[int]int), last: make(map[int]holdfast.Token),
		freed: make(map[int]time.Time),
	}
}

// running is one member's call of Run.
type running struct {
	*kit.Process
	name   string
	shards *shard.Shards
	leave  context.CancelFunc
	done   <-chan struct{}
	err    error // once done
}

// work is a function that runs until its context ends, and a while longer.
func (f *fleet) work(name string, longer time.Duration) func(context.Context, *shard.Shard) error {
	return func(ctx context.Context, s *shard.Shard) error {
		f.begin(name, s)
		<-ctx.Done()
		time.Sleep(longer)
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.owner[s.Index()] == name {
			delete(f.owner, s.Index())
			f.freed[s.Index()] = time.Now()
		}
		return context.Cause(ctx)
	}
}

func (f *fleet) begin(name string, s *shard.Shard) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if other := f.owner[s.Index()]; other != "" {
		f.t.Errorf("%s owns shard %d beside %s", name, s.Index(), other)
	}
	if s.Token() <= f.last[s.Index()] {
		f.t.Errorf("shard %d: token %v after %v", s.Index(), s.Token(), f.last[s.Index()])
	}
	f.owner[s.Index()], f.last[s.Index()] = name, s.Token()
	f.begun[s.Index()]++
	f.latest = time.Now()
	if freed, ever := f.freed[s.Index()]; ever {
		f.longest = max(f.longest, time.Since(freed))
	}
}

// calls returns how often functions were called.
func (f *fleet) calls() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, of := range f.begun {
		n += of
	}
	return n
}

func (f *fleet) start(name string, longer time.Duration, change ...func(*shard.Options)) *running {
	return f.startWith(kit.Start(f.t, f.srv), name, f.work(name, longer), change...)
}

func (f *fleet) startWith(
	p *kit.Process, name string, fn func(context.Context, *shard.Shard) error, change ...func(*shard.Options),
) *running {
	o := shard.Options{Member: name, Value: "http://" + name}
	for _, c := range change {
		c(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	all := shard.New(p.Sess, "orders", f.n)
	r := &running{Process: p, name: name, shards: all, leave: cancel, done: done}
	go func() { // joined by the cleanup
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				r.err = fmt.Errorf("panic: %v", v)
			}
		}()
		r.err = all.With(o).Run(ctx, fn)
	}()
	f.t.Cleanup(r.stop)
	return r
}

func (r *running) stop() {
	r.leave()
	<-r.done
}

// delayed has messages take their time, and counts requests from now on.
func (r *running) delayed() {
	r.Plan(func(string, int) etcdfake.Fate { return etcdfake.Fate{Request: kit.OneWay, Reply: kit.OneWay} })
}

// shared returns how many requests that share shards were sent since then, by kind; others are the session's.
func (r *running) shared() map[string]int {
	all := r.Counts()
	maps.DeleteFunc(all, func(kind string, _ int) bool {
		return !slices.Contains([]string{"enqueue", "hand-off", "remove", "read", "watch"}, kind)
	})
	return all
}

// sharedBy returns how many requests that share shards all of them have sent, by kind.
func sharedBy(all []*running) map[string]int {
	sum := make(map[string]int)
	for _, r := range all {
		for kind, n := range r.shared() {
			sum[kind] += n
		}
	}
	return sum
}

// even checks that these members own all shards, with loads that differ by at most one.
func (f *fleet) even(what string, names ...string) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	loads := make(map[string]int)
	for _, name := range names {
		loads[name] = 0
	}
	for _, owner := range f.owner {
		loads[owner]++
	}
	of := slices.Collect(maps.Values(loads))
	if len(loads) != len(names) || len(f.owner) != f.n || slices.Max(of)-slices.Min(of) > 1 {
		f.t.Errorf("%s: %d of %d shards are owned: %v", what, len(f.owner), f.n, loads)
	}
}

func (f *fleet) owned() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.owner)
}

// empty checks that nothing is left but the number of shards.
func (f *fleet) empty() {
	f.t.Helper()
	time.Sleep(6 * time.Minute) // a session that closes while it is cut off leaves claims for 5 minutes
	for _, kv := range slices.Concat(f.srv.Keys(entries), f.srv.Keys(members)) {
		if string(kv.Key) != count || string(kv.Value) != fmt.Sprint(f.n) {
			f.t.Errorf("left: %s", kv.Key)
		}
	}
}
