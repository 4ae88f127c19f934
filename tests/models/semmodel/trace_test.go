package semmodel

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/internal/steps"
	"github.com/holdfast-go/holdfast/locker"
	client "github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
)

// traced are the models of what runs may do: one after another of them is compared.
var traced = func() (all []scenario) {
	for _, s := range []scenario{
		{limit: 1, attempts: permits(1, 1, 1, 1)},
		{limit: 2, attempts: permits(1, 1, 1, 1)},
		{limit: 3, attempts: permits(2, 1, 3, 1)},
		{limit: 2, attempts: permits(1, 2, 1, 1), resizes: []int8{1, 2}},
		{limit: 3, attempts: permits(2, 1, 1, 2), resizes: []int8{1, 2}},
		{limit: 1, attempts: permits(1, 1, 1, 1), resizes: []int8{2, 1}},
	} {
		s.revokes, s.regrants, s.lossy, s.latePuts, s.unknown =
			int8(len(s.attempts)), true, true, true, true
		giveUp(s.attempts, 0, 1, 2, 3)
		all = append(all, s)
	}
	return all
}()

func tracedBy(seed uint64) scenario { return traced[seed%uint64(len(traced))] }

// A run is one schedule: processes acquire permits of one semaphore, each once, while its limit is changed, requests
// are lost and late, watches break, and etcd revokes leases.
type run struct {
	*modeltrace.Recorder[steps.Step]
	scenario
	srv     *etcdfake.Server
	r       *rand.Rand // of the fates of requests; the server's lock protects it
	latency time.Duration
	lose    float64
	slow    float64
	healed  atomic.Bool
	present atomic.Int64       // the limit
	marks   chan time.Duration // a mark is on its way, for so long
}

func recordRun(t *testing.T, seed uint64) (events []event, ok bool) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		s := tracedBy(seed)
		r := &run{scenario: s, srv: srv, r: rand.New(rand.NewPCG(seed, 0)), marks: make(chan time.Duration, 1)}
		resizer := kit.Start(t, srv)
		resizer.Link.Delay(0) // no permit goes between its read and its put
		r.resize(t, resizer, 0)
		r.Recorder = modeltrace.NewRecorder[steps.Step](t, srv, len(s.attempts), retryEvenly)
		r.latency = []time.Duration{2 * time.Millisecond, 20 * time.Millisecond, 80 * time.Millisecond}[r.r.IntN(3)]
		r.lose, r.slow = []float64{0, 0.1, 0.3}[r.r.IntN(3)], []float64{0, 0.1, 0.3}[r.r.IntN(3)]
		var calls sync.WaitGroup
		goes := func(part uint64, f func(*rand.Rand)) {
			source := rand.New(rand.NewPCG(seed, part))
			calls.Go(func() { f(source) })
		}
		for n, p := range r.Processes {
			queue.Observe(p.Host, func(s steps.Step) {
				// With a lost lease the model has ended the attempt, or has it queue again; a put is seen in etcd.
				if s.Lease.Lost() == nil && s.Action != steps.Sends {
					r.Say(s, s.Read)
				}
			})
			p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
				r.NoticeLosses()
				return r.fate(c)
			})
			goes(uint64(n)+1, func(source *rand.Rand) { r.use(t, n, source) })
		}
		goes(11, r.revoke)
		goes(12, r.breakWatches)
		goes(13, func(source *rand.Rand) {
			for n := range s.resizes {
				time.Sleep(modeltrace.UpTo(source, time.Second, 5*time.Second))
				r.resize(t, resizer, n+1)
			}
		})
		calls.Wait()
		r.healed.Store(true)
		time.Sleep(time.Minute) // for what is still to be removed
		events, ok = r.events(t)
	})
	return events, ok
}

// resize puts the limit, or changes it to the n-th.
func (r *run) resize(t *testing.T, p *kit.Process, n int) {
	if n == 0 {
		kit.SetLimit(t, r.srv, int(r.limit), int(r.limit))
		r.present.Store(int64(r.limit))
		return
	}
	sem := locker.NewSemaphore(p.Sess, "x", int(r.present.Load()))
	if err := sem.Resize(kit.Within(t, time.Minute), int(r.resizes[n-1])); err != nil {
		t.Error(err)
	}
	r.present.Store(int64(r.resizes[n-1]))
}

// fate draws what becomes of a request. A put is not slow: in the model one copy arrives late at most.
func (r *run) fate(c etcdfake.Call) (f etcdfake.Fate) {
	if r.healed.Load() {
		return f
	}
	f.Request, f.Reply = modeltrace.UpTo(r.r, r.latency), modeltrace.UpTo(r.r, r.latency)
	if put, ok := c.Request.(*pb.PutRequest); ok {
		if _, known := r.Lease(put.Lease); !known {
			return f // or the session might not use the lease
		}
	}
	switch kind := kit.KindOf(c); kind {
	case "enqueue", "mark", "remove":
		f.LoseRequest, f.LoseReply = r.r.Float64() < r.lose/2, r.r.Float64() < r.lose/2
		if kind != "enqueue" && r.r.Float64() < r.slow {
			f.Request += modeltrace.UpTo(r.r, 300*time.Millisecond, 3*time.Second)
		}
		if r.r.Float64() < r.slow {
			f.Reply += modeltrace.UpTo(r.r, 300*time.Millisecond, 3*time.Second)
		}
		if kind == "mark" && !f.LoseRequest {
			select {
			case r.marks <- f.Request:
			default:
			}
		}
	}
	return f
}

// use acquires and releases, or gives up. A call that names another limit than the present one puts nothing, unless it
// has lost a lease and queues again.
func (r *run) use(t *testing.T, n int, source *rand.Rand) {
	time.Sleep(modeltrace.UpTo(source, 10*time.Millisecond, time.Second, 3*time.Second))
	ctx := kit.Within(t, modeltrace.UpTo(source, 50*time.Millisecond, time.Second, 10*time.Second, 10*time.Second))
	lease := r.Processes[n].Sess.Lease()
	for {
		sem := locker.NewSemaphore(r.Processes[n].Sess, "x", int(r.present.Load()))
		p, err := sem.Acquire(ctx, int(r.attempts[n].weight))
		var limit *holdfast.LimitError
		if errors.As(err, &limit) && limit.Weight == 0 && r.Processes[n].Sess.Lease() == lease {
			continue
		}
		if err != nil {
			return
		}
		select {
		case <-p.Done():
		case <-time.After(modeltrace.UpTo(source, 10*time.Millisecond, time.Second, 3*time.Second)):
		}
		_ = p.Release(kit.Within(t, 10*time.Second))
		return
	}
}

// revoke has etcd revoke leases, of each session its first one at most.
func (r *run) revoke(source *rand.Rand) {
	for _, n := range source.Perm(len(r.Processes)) {
		time.Sleep(modeltrace.UpTo(source, 50*time.Millisecond, time.Second, 3*time.Second))
		lease := int64(r.Processes[n].Sess.Lease())
		switch source.IntN(4) {
		case 0:
			continue
		case 1, 2: // while the permit behind one that was just marked reads what stands ahead
			lease = r.oldestAfterMark(source, lease)
		}
		if number, known := r.Lease(lease); known && number%2 == 0 {
			r.srv.Revoke(clientv3.LeaseID(lease))
		}
	}
}

// oldestAfterMark waits for a permit to be marked. It returns the lease of the oldest one then, or another one.
func (r *run) oldestAfterMark(source *rand.Rand, otherwise int64) int64 {
	select {
	case <-r.marks: // an earlier one
	default:
	}
	select {
	case takes := <-r.marks:
		time.Sleep(takes + modeltrace.UpTo(source, r.latency))
	case <-time.After(3 * time.Second):
		return otherwise
	}
	standing := r.srv.Keys(kit.Permits("x"))
	if len(standing) < 2 {
		return otherwise
	}
	return slices.MinFunc(standing, func(a, b *mvccpb.KeyValue) int {
		return cmp.Compare(a.CreateRevision, b.CreateRevision)
	}).Lease
}

func (r *run) breakWatches(source *rand.Rand) {
	for range source.IntN(4) {
		time.Sleep(modeltrace.UpTo(source, 50*time.Millisecond, 3*time.Second))
		r.srv.CancelWatches(rpctypes.ErrNoLeader)
	}
}

func retryEvenly(o *client.Options) {
	o.Retry = backoff.Policy{Attempt: time.Second, Rand: func() float64 { return 0.5 }}
}

// events returns the run as the model has it.
func (r *run) events(t *testing.T) ([]event, bool) {
	records, ok := r.Records()
	var events []event
	var changed []int64 // revisions that are in the model
	at := func(real int64) (in revision) {
		for in = 1; int(in) <= len(changed) && changed[in-1] <= real; in++ {
		}
		return in
	}
	for _, rec := range records {
		switch {
		case rec.Told != 0:
			lease, _ := r.Lease(int64(rec.Told))
			events = append(events, event{action: told, actor: lease})
		case rec.Step != nil:
			events = append(events, r.step(rec.Step, at))
		default:
			if e := r.change(t, rec.Changes, at); e.action != unseen {
				changed = append(changed, rec.Revision())
				events = append(events, e)
			}
		}
	}
	return append(events, event{action: ended}), ok
}

func (r *run) step(s *steps.Step, at func(int64) revision) event {
	lease, _ := r.Lease(int64(s.Lease.ID()))
	e := event{actor: lease / maxTries}
	switch s.Action {
	case steps.Judged:
		e.action, e.first, e.delays, e.cut = judged, s.First, s.Delays, s.Unfound
		if s.Ahead != "" && !s.First {
			e.ahead = at(s.AheadCreated)
		}
	case steps.Waited:
		e.action = waited
	case steps.Holds:
		e.action = holds
	}
	return e
}

// change returns what a revision has changed. That a permit says since when it is held is no change.
func (r *run) change(t *testing.T, changes []etcdfake.Change, at func(int64) revision) (e event) {
	found := 0
	for _, c := range changes {
		now := event{}
		lease := c.Kv.Lease
		if c.Prev != nil {
			lease = c.Prev.Lease
		}
		now.actor, _ = r.Lease(lease)
		switch key := string(c.Kv.Key); {
		case key == kit.LimitX:
			limit, _ := layout.LimitIn(c.Kv)
			now = event{action: resizes, limit: int8(limit.Permits), high: int8(limit.High)}
		case strings.HasPrefix(key, "holdfast/session/"):
			if !c.Deleted {
				continue
			}
			e.action, e.actor = revokes, now.actor
			continue
		case c.Deleted:
			now.action = removes
		case c.Prev == nil:
			now.action = puts
		case layout.MarkIn(c.Prev) == layout.MarkIn(c.Kv):
			continue
		default:
			now.action, now.mark = marks, at(layout.MarkIn(c.Kv))
		}
		if found++; e.action != revokes {
			e = now
		}
	}
	if found > 1 {
		t.Errorf("one revision changes more than one permit: %v", changes)
	}
	return e
}

func TestRunsOfTheSemaphoreAreRunsOfTheModel(t *testing.T) {
	modeltrace.Compare(t, 1, recordRun, func(events []event, seed uint64) (string, int) {
		m := model{scenario: tracedBy(seed)}
		return m.refused(events)
	})
}
