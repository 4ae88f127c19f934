package hold_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// From 7 s on etcd says that a request has timed out, and carries it out all the same.
func TestLockIsTakenByAReadWhereEachWriteTimesOut(t *testing.T) {
	const commit = 7 * time.Second
	for kind, c := range crowds {
		t.Run(kind, func(t *testing.T) {
			three(t, func(t *testing.T, srv *etcdfake.Server) {
				p := startQuiet(t, srv)
				holdtest.MustRelease(t, holdtest.MustAcquire(t, c.of(p, 0))) // puts the limit of a semaphore
				rests(t, p)
				puts := 0
				p.Link.Plan(func(call etcdfake.Call) etcdfake.Fate {
					if call.Request == nil || !commits(call) {
						return etcdfake.Fate{}
					}
					puts++
					return etcdfake.Fate{Request: commit, LoseReply: true}
				})
				began := time.Now()
				h := holdtest.MustAcquire(t, c.of(p, 0))
				// The last copies are sent shortly before the first send has failed.
				if took := time.Since(began); took > 2*commit || puts > 16 {
					t.Errorf("Lock took %v, and %d writes", took, puts)
				} else {
					t.Logf("Lock took %v, and %d writes", took, puts)
				}
				p.Link.Heal()
				holdtest.MustRelease(t, h)
			})
		})
	}
}

// commits reports whether etcd writes a request to its disk.
func commits(c etcdfake.Call) bool {
	switch r := c.Request.(type) {
	case *pb.PutRequest, *pb.DeleteRangeRequest, *pb.LeaseGrantRequest, *pb.LeaseRevokeRequest:
		return true
	case *pb.TxnRequest:
		for _, op := range append(append([]*pb.RequestOp(nil), r.Success...), r.Failure...) {
			if op.GetRequestRange() == nil {
				return true
			}
		}
	}
	return false
}

// A disk that takes seconds for each commit delays what is written by as much, and by nothing else.
func TestSlowDiskDelaysEachWriteByItsCommit(t *testing.T) {
	const read = 2 * time.Millisecond
	for _, c := range []struct {
		commit    time.Duration
		new, lock time.Duration // at most
	}{
		{3900 * time.Millisecond, 8 * time.Second, 4 * time.Second},
		{4200 * time.Millisecond, 9 * time.Second, 5 * time.Second},
		{6500 * time.Millisecond, 14 * time.Second, 7 * time.Second},
	} {
		t.Run(c.commit.String(), func(t *testing.T) {
			three(t, func(t *testing.T, srv *etcdfake.Server) {
				var sessions [2]*session.Session
				var sent [2]int
				for i := range sessions {
					link := srv.Link()
					slow := func(call etcdfake.Call) etcdfake.Fate {
						if call.Request == nil || call.Method == "Watch" {
							return etcdfake.Fate{}
						}
						sent[i]++
						if !commits(call) {
							return etcdfake.Fate{Reply: read}
						}
						return etcdfake.Fate{Request: c.commit}
					}
					link.Plan(slow)
					cli := kit.Dial(t, link, srv.Members())
					began := time.Now()
					sess, err := session.New(t.Context(), cli, session.Options{
						Clock: session.MonotonicClock(), Logger: slog.New(slog.DiscardHandler),
					})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { link.Heal(); _ = sess.Close(t.Context()) })
					cli.Watcher = link.Client().Watcher // etcd's own stops virtual time
					if took := time.Since(began); took > c.new {
						t.Errorf("New took %v", took)
					}
					sessions[i] = sess
				}
				one := queue.New(lease.Open(sessions[0]), holdfast.KindElection, "x")
				two := queue.New(lease.Open(sessions[1]), holdfast.KindElection, "x")
				began := time.Now()
				h := holdtest.MustAcquire(t, one)
				if took := time.Since(began); took > c.lock {
					t.Errorf("Lock took %v", took)
				} else {
					t.Logf("Lock took %v", took)
				}
				next := holdtest.AcquireLater(kit.Within(t, time.Minute), two)
				time.Sleep(2 * c.commit)
				released := time.Now()
				unlock := h.Release(t.Context())
				r := holdtest.Granted(t, srv, next)
				if took := time.Since(released); unlock != nil || took > 2*c.lock {
					t.Errorf("Unlock, and the next one's Lock, took %v: %v", took, unlock)
				}
				if err := r.H.Release(t.Context()); err != nil {
					t.Errorf("Unlock: %v", err)
				}
				for i, sess := range sessions {
					if err := sess.Check(); err != nil {
						t.Errorf("session %d: %v", i, err)
					}
					// In all that time each renews its lease, and watches members. Each write has some copies.
					if n := sent[i]; n > 100 {
						t.Errorf("session %d has sent %d requests", i, n)
					}
				}
			})
		})
	}
}

// etcd's leader fails beside commits of 4.2 s. The sessions keep their leases, and the callers are served in order.
func TestLeaderChangeBesideSlowCommitsLosesNoSession(t *testing.T) {
	const commit, election = 4200 * time.Millisecond, 1500 * time.Millisecond
	three(t, func(t *testing.T, srv *etcdfake.Server) {
		var sessions []*holdtest.Process
		for range 4 {
			p := startQuiet(t, srv)
			rests(t, p)
			p.Link.Plan(func(call etcdfake.Call) etcdfake.Fate {
				if call.Request == nil || !commits(call) {
					return etcdfake.Fate{}
				}
				return etcdfake.Fate{Request: commit}
			})
			sessions = append(sessions, p)
		}
		var served []int
		var callers sync.WaitGroup
		for i, p := range sessions {
			callers.Go(func() {
				h := holdtest.MustAcquire(t, p.Queue("x"))
				served = append(served, i) // one holds at a time
				if err := h.Release(t.Context()); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			})
			time.Sleep(100 * time.Millisecond) // so that they queue in this order
		}
		time.Sleep(commit)
		srv.LoseLeader()
		time.Sleep(election)
		srv.ChangeLeader(0)
		callers.Wait()
		if !slices.Equal(served, []int{0, 1, 2, 3}) {
			t.Errorf("served in the order %v", served)
		}
		for i, p := range sessions {
			if err := p.Sess.Check(); err != nil {
				t.Errorf("session %d: %v", i, err)
			}
			p.Link.Heal()
		}
	})
}

var crowdSize = flag.Int("crowd", 120, "callers in the tests of crowds; at most 240 where each waits by itself")

var crowds = map[string]crowd{
	"Mutex":   {of: func(p *holdtest.Process, _ int) *queue.Queue { return p.Queue("x") }},
	"readers": {of: func(p *holdtest.Process, _ int) *queue.Queue { return p.Readers("x") }},
	"RWMutex": {most: 240, behind: true, of: func(p *holdtest.Process, i int) *queue.Queue {
		if i%10 == 0 {
			return p.Queue("x")
		}
		return p.Readers("x")
	}},
	"Semaphore": {most: 240, of: func(p *holdtest.Process, _ int) *queue.Queue { return p.Permits(25, 1) }},
}

// Where each request takes seconds, so does each watch. It is not made again for that.
func TestWaiterOfAnOverloadedEtcdArmsOneWatch(t *testing.T) {
	for _, kind := range []string{"RWMutex", "Semaphore"} {
		t.Run(kind, func(t *testing.T) {
			busy := crowds[kind].serve(t, 16, 10*time.Millisecond)
			if busy.watches > 1.02 { // the look beside a watch may be answered before the watch stands
				t.Errorf("%.3f watches for each call", busy.watches)
			}
			t.Logf("served in %v, with %.2f requests each, %.2f watches", busy.took, busy.requests, busy.watches)
		})
	}
}

// A crowd is served by an etcd that serves 300 requests a second, with hardly more requests of each call than an etcd
// at rest gets, and no session is lost. A caller that waits arms one watch.
func TestCrowdIsServedByABusyEtcd(t *testing.T) {
	for kind, c := range crowds {
		for _, sessions := range []int{1, 16} {
			t.Run(fmt.Sprintf("%s, %d sessions", kind, sessions), func(t *testing.T) {
				rest := c.serve(t, sessions, 30*time.Microsecond)
				busy := c.serve(t, sessions, 3*time.Millisecond)
				// The first two rounds of copies of a session are free, and it finds out once whether slow puts were carried out;
				// of a permit that does not fit twice, since a turn is put for it.
				free := 10 * float64(sessions) / float64(c.callers())
				if kind == "Semaphore" {
					free *= 2
				}
				if most := 1.1*rest.requests + free; busy.requests > most {
					t.Errorf("%.2f requests for each call, want at most %.2f: %.2f at rest", busy.requests, most, rest.requests)
				}
				if max(rest.watches, busy.watches) > 1 {
					t.Errorf("%.2f watches for each call, at rest %.2f", busy.watches, rest.watches)
				}
				t.Logf("%d calls served in %v, with %.2f requests each, %.2f watches; at rest %v, %.2f, %.2f",
					c.callers(), busy.took, busy.requests, busy.watches, rest.took, rest.requests, rest.watches)
			})
		}
	}
}

// crowd is callers that acquire and release at once.
type crowd struct {
	most   int  // callers; 0: no limit
	behind bool // another session holds while they queue, so that all wait
	of     func(p *holdtest.Process, i int) *queue.Queue
}

func (c crowd) callers() int {
	if c.most > 0 {
		return min(c.most, *crowdSize)
	}
	return *crowdSize
}

// servedCrowd is what a crowd has cost: requests of each call, without those by which sessions keep their leases.
type servedCrowd struct {
	requests, watches float64
	took              time.Duration
}

// serve has a crowd served by an etcd that takes so long for each request.
func (c crowd) serve(t *testing.T, sessions int, each time.Duration) (s servedCrowd) {
	three(t, func(t *testing.T, srv *etcdfake.Server) {
		var requests, watches, lost, served atomic.Int64
		cluster := new(busyCluster)
		all := startCrowd(t, srv, sessions, cluster, &lost, func(call etcdfake.Call) {
			switch call.Method {
			case "Watch":
				watches.Add(1)
				requests.Add(1)
			case "Txn":
				requests.Add(1)
			}
		})
		// The first put of a semaphore puts its limit, once for all time.
		first := startQuiet(t, srv)
		ahead := holdtest.MustAcquire(t, c.of(first, 0))
		if !c.behind {
			holdtest.MustRelease(t, ahead)
		}
		time.Sleep(time.Second)
		cluster.mu.Lock()
		cluster.each = each
		cluster.mu.Unlock()
		requests.Store(0)
		watches.Store(0)
		ctx, began := kit.Within(t, 10*time.Minute), time.Now()
		var callers sync.WaitGroup
		for i := range c.callers() {
			callers.Go(func() {
				if acquireAndRelease(ctx, t, c.of(all[i%sessions], i)) {
					served.Add(1)
				}
			})
		}
		if c.behind {
			time.Sleep(5 * time.Second)
			holdtest.MustRelease(t, ahead)
		}
		callers.Wait()
		n := float64(c.callers())
		s = servedCrowd{float64(requests.Load()) / n, float64(watches.Load()) / n, time.Since(began)}
		if served.Load() != int64(c.callers()) || lost.Load() > 0 {
			t.Errorf("%d of %d served in %v, %d sessions lost", served.Load(), c.callers(), s.took, lost.Load())
		}
		time.Sleep(5 * time.Second)
		if n := cluster.count(20*time.Second) * busySessions / float64(sessions); n > 1 {
			t.Errorf("5 s later each session sends %.2f requests a second", n)
		}
	})
	return s
}

func acquireAndRelease(ctx context.Context, t *testing.T, q *queue.Queue) bool {
	h, err := hold.Acquire(ctx, q, hold.Request{})
	if err != nil {
		t.Error(err)
		return false
	}
	if err := h.Release(ctx); err != nil {
		t.Error(err)
		return false
	}
	return true
}

// Callers that give up, and come again at once, leave requests and entries behind. Within 5 s after the load nothing is
// sent but renewals and polls, and the lock is free.
func TestCallersThatComeAgainLeaveNothingToSend(t *testing.T) {
	for kind, c := range crowds {
		t.Run(kind, func(t *testing.T) {
			three(t, func(t *testing.T, srv *etcdfake.Server) { c.comeAgain(t, srv, 6*time.Second) })
		})
	}
}

func (c crowd) comeAgain(t *testing.T, srv *etcdfake.Server, lasts time.Duration) {
	const sessions, callers, patience = 16, 120, time.Second
	cluster := new(busyCluster)
	var over atomic.Bool
	var after, writes atomic.Int64
	all := startCrowd(t, srv, sessions, cluster, nil, func(call etcdfake.Call) {
		if !over.Load() {
			return
		}
		after.Add(1)
		if call.Method == "Watch" || commits(call) {
			writes.Add(1)
		}
	})
	time.Sleep(time.Second)
	cluster.mu.Lock()
	cluster.each = 10 * time.Millisecond
	cluster.mu.Unlock()
	end := time.Now().Add(lasts)
	var running sync.WaitGroup
	var gaveUp atomic.Int64
	for i := range callers {
		running.Go(func() {
			for time.Now().Before(end) {
				h, err := hold.Acquire(kit.Within(t, patience), c.of(all[i%sessions], i), hold.Request{})
				if err != nil {
					gaveUp.Add(1)
				} else if err := h.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	if gaveUp.Load() < callers {
		t.Errorf("%d calls gave up: this tests nothing", gaveUp.Load())
	}
	cluster.mu.Lock()
	cluster.each = perSecond(100)
	late := time.Until(cluster.free) // etcd also serves requests whose callers have gone
	cluster.mu.Unlock()
	time.Sleep(max(0, late) + 5*time.Second)
	over.Store(true)
	time.Sleep(20 * time.Second)
	over.Store(false)
	if n := float64(after.Load()) / sessions / 20; n > 1 || writes.Load() > 0 {
		t.Errorf("5 s later each session sends %.2f requests a second; %d are writes and watches", n, writes.Load())
	}
	h, err := hold.Acquire(kit.Within(t, time.Second), c.of(all[0], 0), hold.Request{})
	if err != nil {
		t.Fatalf("25 s later: %v", err)
	}
	holdtest.MustRelease(t, h)
}

// startCrowd starts the sessions of a crowd on a cluster. lost, if it is not nil, counts those whose leases are lost;
// sent is told of each request.
func startCrowd(
	t *testing.T, srv *etcdfake.Server, sessions int, cluster *busyCluster, lost *atomic.Int64, sent func(etcdfake.Call),
) (all []*holdtest.Process) {
	t.Helper()
	for i := range sessions {
		p := startQuiet(t, srv, func(o *session.Options) {
			o.OnStateChange = func(ev session.Event) {
				if ev.State == holdfast.Lost && lost != nil {
					lost.Add(1)
				}
			}
		})
		serve := cluster.serve(i)
		p.Link.Plan(func(call etcdfake.Call) etcdfake.Fate {
			if call.Request != nil {
				sent(call)
			}
			return serve(call)
		})
		all = append(all, p)
	}
	return all
}
