package queuemodel

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
	client "github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
)

// traced is the model of what a run may do.
var traced = scenario{
	name: "a run", faults: budget{revokes: 6, deletes: 9, notices: 9, removals: 9}, regrants: true,
	attempts: []plan{
		writer(0, 0).gives().requeues(), writer(1, 1).gives().requeues(), writer(2, 2).gives().requeues(),
		writer(0, 3).gives().requeues(),
	},
}

// tracedReaders is traced for an RWMutex: the second process and the second call of the first one are readers.
var tracedReaders = with(traced, func(s *scenario) {
	s.attempts = slices.Clone(s.attempts)
	s.attempts[1].entries, s.attempts[3].entries = []member{{1, 0, false}}, []member{{3, 0, false}}
})

// A run is one schedule: three processes lock one mutex, the first of them twice, while requests are lost and late,
// watches break, and etcd revokes leases.
type run struct {
	*recorder
	scenario
	srv     *etcdfake.Server
	r       *rand.Rand // of the fates of requests; the server's lock protects it
	latency time.Duration
	lose    float64 // of the puts and of the removals, and of the puts of a session key
	slow    float64
	healed  atomic.Bool
}

func (r *run) source(part uint64) *rand.Rand { return rand.New(rand.NewPCG(r.r.Uint64(), part)) }

// upTo draws a duration up to one of some limits.
func upTo(r *rand.Rand, limits ...time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(limits[r.IntN(len(limits))]))) + time.Microsecond
}

// record returns the events of a run.
func recordRun(t *testing.T, s scenario, seed uint64) (events []event, followed bool) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		r := &run{recorder: newRecorder(t, srv, maxSessions), scenario: s, srv: srv}
		r.r = rand.New(rand.NewPCG(seed, 0))
		r.latency = []time.Duration{2 * time.Millisecond, 20 * time.Millisecond, 80 * time.Millisecond}[r.r.IntN(3)]
		r.lose, r.slow = []float64{0, 0.1, 0.3}[r.r.IntN(3)], []float64{0, 0.1, 0.3}[r.r.IntN(3)]
		sources := []*rand.Rand{r.source(1), r.source(2), r.source(3), r.source(4), r.source(5), r.source(6)}
		for n, p := range r.Processes {
			p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
				r.sends(n, c)
				return r.fate(c)
			})
		}
		var calls sync.WaitGroup
		for n := range r.Processes {
			calls.Go(func() {
				for i, plan := range s.attempts {
					if plan.session == int8(n) {
						r.call[n].Store(int32(i))
						r.use(t, int8(i), sources[n])
					}
				}
			})
		}
		calls.Go(func() { r.revoke(sources[3]) })
		calls.Go(func() { r.breakWatches(sources[4]) })
		calls.Go(func() { r.meddle(t, sources[5]) })
		calls.Wait()
		r.healed.Store(true)
		time.Sleep(time.Minute) // for what is still to be removed
		events, followed = r.events()
	})
	return events, followed
}

// fate draws what becomes of a request.
func (r *run) fate(c etcdfake.Call) (f etcdfake.Fate) {
	if r.healed.Load() {
		return f
	}
	f.Request, f.Reply = upTo(r.r, r.latency), upTo(r.r, r.latency)
	if put, ok := c.Request.(*pb.PutRequest); ok {
		if _, known := r.Lease(put.Lease); !known {
			return f // or the session might not use the lease
		}
	}
	switch kit.KindOf(c) {
	case "enqueue", "remove", "gate":
		f.LoseRequest, f.LoseReply = r.r.Float64() < r.lose/2, r.r.Float64() < r.lose/2
		if r.r.Float64() < r.slow {
			f.Request += upTo(r.r, 300*time.Millisecond, 3*time.Second)
		}
		if r.r.Float64() < r.slow {
			f.Reply += upTo(r.r, 300*time.Millisecond, 3*time.Second)
		}
	}
	return f
}

// use locks and releases, or gives up.
func (r *run) use(t *testing.T, attempt int8, source *rand.Rand) {
	p := r.attempts[attempt]
	time.Sleep(upTo(source, 10*time.Millisecond, time.Second))
	wait := upTo(source, 50*time.Millisecond, time.Second, 10*time.Second, 10*time.Second, 30*time.Second)
	lk, err := r.lock(kit.Within(t, wait), p)
	if err != nil {
		return
	}
	r.does(attempt, holds)
	select {
	case <-lk.Done():
	case <-time.After(upTo(source, 10*time.Millisecond, time.Second, 3*time.Second)):
	}
	r.does(attempt, letsGo)
	_ = lk.Unlock(kit.Within(t, 10*time.Second))
}

// heldLock is what a lock has while it is held.
type heldLock interface {
	Done() <-chan struct{}
	Unlock(context.Context) error
}

func (r *run) lock(ctx context.Context, p plan) (heldLock, error) {
	sess := r.Processes[p.session].Sess
	if !p.entries[0].write {
		return locker.NewRWMutex(sess, "x").RLock(ctx)
	}
	return locker.NewMutex(sess, "x").Lock(ctx) // as the Lock of an RWMutex
}

// revoke has etcd revoke leases, of each session its first one at most.
func (r *run) revoke(source *rand.Rand) {
	for _, n := range source.Perm(len(r.Processes)) {
		time.Sleep(upTo(source, 50*time.Millisecond, time.Second, 3*time.Second))
		lease := int64(r.Processes[n].Sess.Lease())
		switch source.IntN(4) {
		case 0:
			continue
		case 1, 2: // while the entry behind one that has just gone asks how it went
			lease = r.leaseAfterDeletion(source, lease)
		}
		if number, known := r.Lease(lease); known && number%2 == 0 {
			r.srv.Revoke(clientv3.LeaseID(lease))
		}
	}
}

// leaseAfterDeletion waits for an entry to go. It returns the lease of one that stands ahead of it, or its own.
func (r *run) leaseAfterDeletion(source *rand.Rand, otherwise int64) int64 {
	known := len(r.srv.History(kit.Entries("x")))
	for range 3000 {
		time.Sleep(time.Millisecond)
		changes := r.srv.History(kit.Entries("x"))
		for _, c := range changes[known:] {
			if !c.Deleted {
				continue
			}
			standing := r.srv.Keys(kit.Entries("x"))
			switch {
			case len(standing) > 1 && standing[0].CreateRevision < c.Prev.CreateRevision:
				time.Sleep(upTo(source, r.latency))
				return standing[0].Lease
			case source.IntN(2) == 0:
				return c.Prev.Lease
			}
		}
		known = len(changes)
	}
	return otherwise
}

func (r *run) breakWatches(source *rand.Rand) {
	for range source.IntN(4) {
		time.Sleep(upTo(source, 50*time.Millisecond, 3*time.Second))
		r.srv.CancelWatches(rpctypes.ErrNoLeader)
	}
}

// meddle deletes entries by hand, and has an administrator ask holders to let go, and remove them.
func (r *run) meddle(t *testing.T, source *rand.Rand) {
	adm := admin.New(r.srv.Client(t), admin.Options{
		Auditor: audit.Func(func(context.Context, audit.Record) {}),
	})
	for range source.IntN(4) {
		time.Sleep(upTo(source, 50*time.Millisecond, 3*time.Second))
		standing := kit.Standing(r.srv, "x")
		if len(standing) == 0 {
			continue
		}
		do := adm.Kick
		switch source.IntN(3) {
		case 0:
			one := standing[source.IntN(len(standing))]
			// Not one that was moved: then two may hold.
			if own, _ := layout.LeaseOf(string(one.Key)); own == clientv3.LeaseID(one.Lease) {
				r.srv.Delete(string(one.Key))
			}
			continue
		case 1:
			do = adm.Remove
		}
		q, err := adm.Show(t.Context(), holdfast.KindLock, "x")
		if holders := q.Holders(); err == nil && len(holders) > 0 {
			_ = do(kit.Within(t, 10*time.Second), holdfast.KindLock, "x", holders[0].Token, "a run")
		}
	}
}

func retryEvenly(o *client.Options) {
	o.Retry = backoff.Policy{Rand: func() float64 { return 0.5 }}
}

func TestRunsOfTheQueueAreRunsOfTheModel(t *testing.T) { compareRuns(t, traced) }

func TestRunsWithReadersAreRunsOfTheModel(t *testing.T) { compareRuns(t, tracedReaders) }

// compareRuns compares runs of a scenario with the model.
func compareRuns(t *testing.T, s scenario) {
	t.Helper()
	modeltrace.Compare(t, 1,
		func(t *testing.T, seed uint64) ([]event, bool) { return recordRun(t, s, seed) },
		func(events []event, _ uint64) (string, int) { return newModel(s).refused(events) })
}
