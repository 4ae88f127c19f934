package robustness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/grpcfence"
	"github.com/holdfast-go/holdfast/fencing/httpfence"
	"github.com/holdfast-go/holdfast/internal/child"
)

var pauses = flag.Int("pauses", 20, "how many times TestNoStaleWriteLandsAfterAPause stops the writer of each store")

// Processes that are stopped for longer than their lease at a random moment of
// a write, and go on writing when they are continued. Each stop hits a writer of
// every store; the last writer of each pair is killed instead.
//
//	go test -race ./tests/robustness -run TestNoStaleWriteLandsAfterAPause -pauses=500 -timeout=1h
func TestNoStaleWriteLandsAfterAPause(t *testing.T) {
	t.Parallel()
	const pairs = 4
	s := newStaleWriters(t)
	each := (*pauses + pairs - 1) / pairs
	inParallel(pairs, pairs, func(i int) { s.pair(t, fmt.Sprint("pair", i), each) })
	landed := 0
	for i := range pairs {
		for store := range guardedStores {
			landed += s.judge(t, fmt.Sprint("pair", i, "/", store))
		}
	}
	t.Logf("%d pauses of the writers of %d stores, %d writes landed", each*pairs, len(guardedStores), landed)
}

// staleWriters is what the children write to, and what they say of it.
type staleWriters struct {
	srv        *etcdtest.Server
	http, grpc string

	mu       sync.Mutex // protects what follows
	counters map[string]int
	landed   map[string][]fencing.Token // by lane, in memory
	said     map[string][]writerEvent   // by lane: writers that were refused as stale
}

func newStaleWriters(t *testing.T) *staleWriters {
	t.Helper()
	s := &staleWriters{srv: etcdtest.Start(t), counters: make(map[string]int),
		landed: make(map[string][]fencing.Token), said: make(map[string][]writerEvent)}
	store := fencing.NewMemoryStore(nil)
	quiet := audit.Func(func(context.Context, audit.Record) {})

	web := httptest.NewServer(httpfence.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		c, _ := fencing.ClaimFromContext(r.Context())
		s.increment(c)
	}), store, byLane, &httpfence.Options{Auditor: quiet}))
	t.Cleanup(web.Close)

	guard := grpcfence.NewGuard(store, func(_ context.Context, _ string, req any) (resource, name string, err error) {
		lane := req.(*grpc_health_v1.HealthCheckRequest).Service
		return lane, lane, nil
	}, &grpcfence.Options{Auditor: quiet})
	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(guard.Unary()), grpc.WaitForHandlers(true))
	grpc_health_v1.RegisterHealthServer(srv, counting{s: s})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }() // joined by the cleanup
	t.Cleanup(func() { srv.Stop(); <-served })
	s.http, s.grpc = web.URL, l.Addr().String()
	return s
}

type counting struct {
	grpc_health_v1.UnimplementedHealthServer
	s *staleWriters
}

func (c counting) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	claim, _ := fencing.ClaimFromContext(ctx)
	c.s.increment(claim)
	return &grpc_health_v1.HealthCheckResponse{}, nil
}

// increment is an effect that loses an update if another runs at the same time.
func (s *staleWriters) increment(c fencing.Claim) {
	s.mu.Lock()
	n := s.counters[c.Name]
	s.mu.Unlock()
	runtime.Gosched()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counters[c.Name] = n + 1
	s.landed[c.Name] = append(s.landed[c.Name], c.Token)
}

// A lane is what a process has said of one store.
type lane struct {
	token fencing.Token // of the last one it wrote under
	holds bool          // and was not refused since, as far as it has said
}

// A turn is a pair of processes that take turns at writing.
type turn struct {
	name   string
	procs  [2]*child.Child[writerEvent]
	lanes  [2]map[string]lane
	events chan turnEvent
}

type turnEvent struct {
	from int
	ev   writerEvent
	err  error
}

// pair has two processes take turns: the one that writes is stopped, until the
// other has written. Where the machine is so busy that a lease is lost without a
// pause, the two change places by themselves.
func (s *staleWriters) pair(t *testing.T, name string, each int) {
	p := &turn{name: name, events: make(chan turnEvent, 64)}
	var listening sync.WaitGroup
	defer listening.Wait()
	for i := range p.procs {
		c, err := child.Start[writerEvent](staleWriter, writerJob{s.srv.Endpoints(), name, s.http, s.grpc})
		if err != nil {
			t.Error(err)
			return
		}
		p.procs[i], p.lanes[i] = c, make(map[string]lane)
		ctx, cancel := context.WithCancel(t.Context())
		defer func() {
			cancel()
			unexpected := errors.New("the child has written to stderr")
			if err := child.KillAll(unexpected, c); err != unexpected { // a panic, a data race
				t.Error(err)
			}
		}()
		listening.Go(func() {
			for {
				ev, err := c.Await(ctx, "writer")
				select {
				case p.events <- turnEvent{i, ev, err}:
				case <-ctx.Done():
				}
				if err != nil {
					return
				}
			}
		})
		if i == 0 && !s.listen(t, p, func(store string) bool { return p.lanes[0][store].holds }) {
			return
		}
	}
	for round := range each + 1 {
		writes, waits := round%2, (round+1)%2
		for store := range guardedStores {
			s.srv.WaitForKeys(t, "holdfast/lock/"+name+"/"+store+"/@/", 2)
		}
		<-time.After(rand.N(30 * time.Millisecond)) // anywhere within a write
		if err := p.procs[writes].Stop(deadline(t)); err != nil {
			t.Error(err)
			return
		}
		overtaken := func(store string) bool {
			return p.lanes[waits][store].holds && p.lanes[waits][store].token > p.lanes[writes][store].token
		}
		if !s.listen(t, p, overtaken) || round == each {
			return // the one that is stopped is killed
		}
		if err := p.procs[writes].Continue(); err != nil {
			t.Error(err)
			return
		}
		refused := func(store string) bool {
			return !p.lanes[writes][store].holds || p.lanes[writes][store].token > p.lanes[waits][store].token
		}
		if !s.listen(t, p, refused) {
			return
		}
	}
}

// listen hears what the processes say until it is so of each store.
func (s *staleWriters) listen(t *testing.T, p *turn, so func(store string) bool) bool {
	ctx := deadline(t)
	for {
		all := true
		for store := range guardedStores {
			all = all && so(store)
		}
		if all {
			return true
		}
		select {
		case e := <-p.events:
			if e.err != nil || e.ev.Err != "" {
				t.Errorf("%s: %+v, %v", p.name, e.ev, e.err)
				return false
			}
			p.lanes[e.from][e.ev.Store] = lane{e.ev.Token, e.ev.What == "wrote"}
			if e.ev.What == "stale" {
				s.mu.Lock()
				s.said[p.name+"/"+e.ev.Store] = append(s.said[p.name+"/"+e.ev.Store], e.ev)
				s.mu.Unlock()
			}
		case <-ctx.Done():
			t.Errorf("%s: the processes do not get on: %+v", p.name, p.lanes)
			return false
		}
	}
}

// judge goes by the record of the store itself, and returns how many writes
// there are in it.
func (s *staleWriters) judge(t *testing.T, lane string) int {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	landed, inMemory := s.landed[lane]
	if !inMemory {
		for _, ev := range s.srv.History(t, "data/"+lane) {
			n, err := strconv.ParseInt(string(ev.Kv.Value), 10, 64)
			if err != nil {
				t.Error(err)
			}
			landed = append(landed, fencing.Token(n))
		}
	} else if s.counters[lane] != len(landed) {
		t.Errorf("%s: the counter is %d after %d increments", lane, s.counters[lane], len(landed))
	}
	by := make(map[fencing.Token]int)
	for i, token := range landed {
		by[token]++
		if i > 0 && token < landed[i-1] {
			t.Errorf("%s: a write of token %v landed after one of %v", lane, token, landed[i-1])
		}
	}
	for _, ev := range s.said[lane] {
		if n := by[ev.Token]; n < ev.Acknowledged || n > ev.Acknowledged+ev.Unknown {
			t.Errorf("%s: token %v: %d writes landed, %d were acknowledged and %d not answered", lane, ev.Token, n, ev.Acknowledged, ev.Unknown)
		}
	}
	if len(s.said[lane]) == 0 {
		t.Errorf("%s: no writer was refused", lane)
	}
	return len(landed)
}
