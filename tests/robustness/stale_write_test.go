package robustness

import (
	"context"
	"errors"
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

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/grpcfence"
	"github.com/holdfast-go/holdfast/fencing/httpfence"
	"github.com/holdfast-go/holdfast/fencing/memfence"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/tests/internal/stalewriter"
)

// Writers are paused at a random moment of a write for longer than their TTL, and
// write on when they resume. No store accepts a stale write. Each pause affects one
// writer of every store. The writer that is paused last is killed.
//
//	go test -race ./tests/robustness -run TestNoStaleWriteLandsAfterAPause -pauses=250 -timeout=1h
func TestNoStaleWriteLandsAfterAPause(t *testing.T) {
	t.Parallel()
	const pairs = 4
	s := newStaleWriters(t)
	each := (2*stalewriter.Pauses() + pairs - 1) / pairs
	inParallel(pairs, pairs, func(i int) { s.pair(t, fmt.Sprint("pair", i), each) })
	accepted := 0
	for i := range pairs {
		for store := range guardedStores {
			accepted += s.check(t, fmt.Sprint("pair", i, "/", store))
		}
	}
	t.Logf("%d pauses of the writers of %d stores, which accepted %d writes", each*pairs, len(guardedStores), accepted)
}

// staleWriters has the servers to which the children write, and records the writes and
// the reports of the children.
type staleWriters struct {
	srv        *etcdtest.Server
	http, grpc string

	mu       sync.Mutex // protects what follows
	counters map[string]int
	accepted map[string][]holdfast.Token // by lane, of the stores in memory
	stale    map[string][]writerEvent    // by lane, from writers that were refused as stale
}

func newStaleWriters(t *testing.T) *staleWriters {
	t.Helper()
	s := &staleWriters{srv: etcdtest.Start(t), counters: make(map[string]int),
		accepted: make(map[string][]holdfast.Token), stale: make(map[string][]writerEvent)}
	store := memfence.New(memfence.Options{})
	discard := audit.Func(func(context.Context, audit.Record) {})

	web := httptest.NewServer(httpfence.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		c, _ := fencing.ClaimFromContext(r.Context())
		s.increment(c)
	}), store, byLane, httpfence.Options{Auditor: discard}))
	t.Cleanup(web.Close)

	guard := grpcfence.NewGuard(store, func(_ context.Context, _ string, req any) (resource, name string, err error) {
		lane := req.(*grpc_health_v1.HealthCheckRequest).Service
		return lane, lane, nil
	}, grpcfence.Options{Auditor: discard})
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

func (c counting) Check(
	ctx context.Context, _ *grpc_health_v1.HealthCheckRequest,
) (*grpc_health_v1.HealthCheckResponse, error) {
	claim, _ := fencing.ClaimFromContext(ctx)
	c.s.increment(claim)
	return &grpc_health_v1.HealthCheckResponse{}, nil
}

// increment is the guarded effect. It loses an update if two run at the same time.
func (s *staleWriters) increment(c fencing.Claim) {
	s.mu.Lock()
	n := s.counters[c.Name]
	s.mu.Unlock()
	runtime.Gosched()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counters[c.Name] = n + 1
	s.accepted[c.Name] = append(s.accepted[c.Name], c.Token)
}

// writerState is the last report of one process on one store.
type writerState struct {
	token holdfast.Token // of its last hold
	holds bool           // it wrote under the token and has not been refused since
}

// A writerPair is two processes that take turns writing. A lane is one store of one
// pair.
type writerPair struct {
	name   string
	procs  [2]*child.Child[writerEvent]
	states [2]map[string]writerState // by store
	events chan pairEvent
}

type pairEvent struct {
	from int
	ev   writerEvent
	err  error
}

// pair runs two processes that take turns: the one that writes is paused until the other has written. On a busy machine
// a lease may expire without a pause, and the two change roles then.
func (s *staleWriters) pair(t *testing.T, name string, each int) {
	p := &writerPair{name: name, events: make(chan pairEvent, 64)}
	var listening sync.WaitGroup
	defer listening.Wait()
	for i := range p.procs {
		c, err := child.Start[writerEvent](staleWriter, writerJob{s.srv.Endpoints(), name, s.http, s.grpc})
		if err != nil {
			t.Error(err)
			return
		}
		p.procs[i], p.states[i] = c, make(map[string]writerState)
		ctx, cancel := context.WithCancel(t.Context())
		defer func() {
			cancel()
			unexpected := errors.New("the child wrote to stderr")
			if err := child.KillAll(unexpected, c); err != unexpected { // a panic, a data race
				t.Error(err)
			}
		}()
		listening.Go(func() {
			for {
				ev, err := c.Await(ctx, "writer")
				select {
				case p.events <- pairEvent{i, ev, err}:
				case <-ctx.Done():
				}
				if err != nil {
					return
				}
			}
		})
		if i == 0 && !s.await(t, p, func(store string) bool { return p.states[0][store].holds }) {
			return
		}
	}
	for round := range each + 1 {
		writes, waits := round%2, (round+1)%2
		for store := range guardedStores {
			s.srv.WaitForKeys(t, "holdfast/lock/"+name+"/"+store+"/@/", 2)
		}
		<-time.After(rand.N(30 * time.Millisecond)) // a random moment of a write
		if err := p.procs[writes].Stop(deadline(t)); err != nil {
			t.Error(err)
			return
		}
		overtaken := func(store string) bool {
			return p.states[waits][store].holds && p.states[waits][store].token > p.states[writes][store].token
		}
		if !s.await(t, p, overtaken) || round == each {
			return // the deferred function kills the paused process
		}
		if err := p.procs[writes].Continue(); err != nil {
			t.Error(err)
			return
		}
		refused := func(store string) bool {
			return !p.states[writes][store].holds || p.states[writes][store].token > p.states[waits][store].token
		}
		if !s.await(t, p, refused) {
			return
		}
	}
}

// await records the events of a pair until ok returns true for each store. It returns
// false if the test has failed.
func (s *staleWriters) await(t *testing.T, p *writerPair, ok func(store string) bool) bool {
	ctx := deadline(t)
	for {
		all := true
		for store := range guardedStores {
			all = all && ok(store)
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
			p.states[e.from][e.ev.Store] = writerState{e.ev.Token, e.ev.What == "wrote"}
			if e.ev.What == "stale" {
				s.mu.Lock()
				s.stale[p.name+"/"+e.ev.Store] = append(s.stale[p.name+"/"+e.ev.Store], e.ev)
				s.mu.Unlock()
			}
		case <-ctx.Done():
			t.Errorf("%s: timed out waiting for the writers: %+v", p.name, p.states)
			return false
		}
	}
}

// check compares the writes that a store accepted with the reports of the writers, and
// returns their number. The tokens of the writes must not decrease.
func (s *staleWriters) check(t *testing.T, lane string) int {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	accepted, inMemory := s.accepted[lane]
	if !inMemory {
		for _, ev := range s.srv.History(t, "data/"+lane) {
			n, err := strconv.ParseInt(string(ev.Kv.Value), 10, 64)
			if err != nil {
				t.Error(err)
			}
			accepted = append(accepted, holdfast.Token(n))
		}
	} else if s.counters[lane] != len(accepted) {
		t.Errorf("%s: the counter is %d after %d increments", lane, s.counters[lane], len(accepted))
	}
	by := make(map[holdfast.Token]int)
	for i, token := range accepted {
		by[token]++
		if i > 0 && token < accepted[i-1] {
			t.Errorf("%s: the store accepted a write with token %v after one with %v", lane, token, accepted[i-1])
		}
	}
	for _, ev := range s.stale[lane] {
		if n := by[ev.Token]; n < ev.Acknowledged || n > ev.Acknowledged+ev.Unknown {
			t.Errorf("%s: token %v: the store accepted %d writes, the writer has %d acknowledged and %d unanswered ones",
				lane, ev.Token, n, ev.Acknowledged, ev.Unknown)
		}
	}
	if len(s.stale[lane]) == 0 {
		t.Errorf("%s: no writer was refused as stale", lane)
	}
	return len(accepted)
}
