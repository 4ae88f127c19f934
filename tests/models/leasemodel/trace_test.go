package leasemodel

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	client "github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
)

// traced is the model of what a run may do.
var traced = scenario{
	terms: maxTerms, copies: maxCopies, ttl: micros(kit.TTL), trust: micros(kit.Trust),
}

func micros(d time.Duration) moment { return moment(d / time.Microsecond) }

// A run is one lease that is renewed while requests are lost and late, etcd does not answer, and leaders are elected,
// of which the former one still acknowledges renewals. It is seen from outside: by what is sent, when that is carried
// out and answered, and by what the holders of the lease know.
type run struct {
	srv   *etcdfake.Server
	key   string // of the session
	lease *lease.Lease
	base  time.Time
	r     *rand.Rand // of the fates of requests; the server's lock protects it
	slow  float64
	most  time.Duration

	mu        sync.Mutex // protects what follows
	events    []event
	suspended bool // told
	over      bool
	outage    time.Time // end of the latest one
	term      int8
	deposed   time.Time // until then the deposed leader acknowledges renewals
}

func recordRun(t *testing.T, seed uint64) (events []event, ok bool) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv, func(o *client.Options) {
			o.Retry = backoff.Policy{Rand: func() float64 { return 0.5 }}
		})
		source := rand.New(rand.NewPCG(seed, 1))
		r := &run{srv: srv, key: p.SessionKey(), lease: p.Host.Lease(), r: rand.New(rand.NewPCG(seed, 0)), term: 1}
		r.base = time.Now().Add(r.lease.Remaining() - r.lease.Trust())
		r.slow = []float64{0, 0.1, 0.3}[source.IntN(3)]
		r.most = []time.Duration{300 * time.Millisecond, 3 * time.Second}[source.IntN(2)]
		p.Link.Delay(0)
		p.Link.Plan(r.send)
		r.awaitSuspension()
		context.AfterFunc(r.lease.Context(), func() {
			r.add(lost)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.over = true
		})
		var faults sync.WaitGroup
		faults.Go(func() {
			for range 2 {
				time.Sleep(modeltrace.UpTo(source, 20*time.Second))
				r.elect(modeltrace.UpTo(source, time.Millisecond, 2*time.Second, 6*time.Second))
			}
		})
		outages := rand.New(rand.NewPCG(seed, 2))
		faults.Go(func() {
			for range outages.IntN(4) {
				time.Sleep(modeltrace.UpTo(outages, 20*time.Second))
				r.mu.Lock()
				r.outage = time.Now().Add(modeltrace.UpTo(outages, 2*time.Second, 8*time.Second, 20*time.Second))
				r.mu.Unlock()
			}
		})
		faults.Wait()
		time.Sleep(20 * time.Second)
		events = r.result()
	})
	return events, true
}

// add adds an event that happens now. What comes after the loss is of no use any more.
func (r *run) add(action string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLocked(action)
}

func (r *run) addLocked(action string) {
	if r.over {
		return
	}
	now := time.Now()
	e := event{at: micros(now.Sub(r.base)), action: action, suspended: r.suspended}
	if action == knows {
		e.until = micros(now.Sub(r.base) + r.lease.Remaining())
		e.suspended = r.lease.ConnectedContext().Err() != nil
	}
	r.events = append(r.events, e)
}

// awaitSuspension records when the holders are told that the lease is suspended.
func (r *run) awaitSuspension() {
	context.AfterFunc(r.lease.ConnectedContext(), func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.lease.Lost() == nil {
			r.suspended = true
			r.addLocked(knows)
		}
	})
}

// look records what the holders know.
func (r *run) look() {
	r.mu.Lock()
	regained := r.suspended && r.lease.ConnectedContext().Err() == nil
	if regained {
		r.suspended = false
	}
	if r.lease.Lost() == nil {
		r.addLocked(knows)
	}
	r.mu.Unlock()
	if regained {
		r.awaitSuspension()
	}
}

// elect elects a leader. In etcdfake it finds at once that it leads.
func (r *run) elect(deposed time.Duration) {
	r.srv.ChangeLeader(deposed)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.term++
	r.deposed = time.Now().Add(deposed)
	r.addLocked(fmt.Sprintf("a leader of term %d is elected", r.term))
	r.addLocked(fmt.Sprintf("the leader of term %d finds that it leads", r.term))
}

// send draws what becomes of a request, and records that of renewals and of reads of the session key. One that is lost
// changes nothing in the model: at most it gives the lease a longer life.
func (r *run) send(c etcdfake.Call) (f etcdfake.Fate) {
	f.Request, f.Reply = r.draw(), r.draw()
	what := ""
	switch request := c.Request.(type) {
	case *pb.LeaseKeepAliveRequest:
		if request.ID == int64(r.lease.ID()) {
			what = "renewal"
		}
	case *pb.RangeRequest:
		if string(request.Key) == r.key {
			what = "read"
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f.LoseRequest = time.Now().Before(r.outage)
	f.LoseReply, f.Silent = what != "" && r.r.Float64() < r.slow/2, true
	if sent := micros(time.Since(r.base)); what != "" && !f.LoseRequest && !f.LoseReply {
		r.addLocked(fmt.Sprintf("a %s is sent", what))
		time.AfterFunc(f.Request, func() { r.carryOut(what, sent, f) })
	}
	return f
}

func (r *run) draw() time.Duration {
	limits := []time.Duration{50 * time.Millisecond}
	if r.r.Float64() < r.slow {
		limits[0] = r.most
	}
	return modeltrace.UpTo(r.r, limits...)
}

// carryOut records that a request is carried out, and when its reply arrives. Those that find the lease gone are not in
// the model: they tell the session, as its watch does.
func (r *run) carryOut(what string, sent moment, f etcdfake.Fate) {
	if len(r.srv.Keys(r.key)) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	term := r.term
	carried := "the read sent at %[2]d is carried out in term %[1]d"
	arrives := "the reply to the read sent at %d arrives, term %d"
	if what == "renewal" {
		carried = "the leader of term %d acknowledges the renewal sent at %d"
		arrives = "the acknowledgement of the renewal sent at %d arrives, term %d"
		if time.Now().Before(r.deposed) {
			term--
		}
	}
	r.addLocked(fmt.Sprintf(carried, term, sent))
	time.AfterFunc(f.Reply, func() {
		r.add(fmt.Sprintf(arrives, sent, term))
		time.AfterFunc(time.Microsecond, r.look)
	})
}

// result returns the events in order, and has time pass between them. What is sent at the moment of a reply may be sent
// because of that.
func (r *run) result() (all []event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.srv.History(r.key) {
		if c.Deleted {
			r.events = append(r.events, event{at: micros(c.At.Sub(r.base)), action: "the lease is revoked"})
		}
	}
	sent := func(e event) int { return strings.Count(e.action, " is sent") }
	slices.SortStableFunc(r.events, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), sent(a)-sent(b)) })
	now := moment(0)
	for _, e := range r.events {
		if e.at > now {
			now = e.at
			all = append(all, event{at: e.at, action: passes, suspended: e.suspended})
		}
		all = append(all, e)
		if e.action == lost {
			break
		}
	}
	return all
}

func TestRunsOfASessionAreRunsOfTheModel(t *testing.T) {
	modeltrace.Compare(t, 5, recordRun, func(events []event, _ uint64) (string, int) {
		m := model{scenario: traced}
		return m.refused(events)
	})
}
