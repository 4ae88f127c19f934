package queuemodel

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/queue"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/internal/steps"
	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
)

// A recorder records a run: the changes of etcd's store, and the steps that the queues of some processes say.
type recorder struct {
	*modeltrace.Recorder[step]
	call []atomic.Int32 // of each process: which attempt of the scenario its call is

	mu    sync.Mutex      // protects what follows
	known map[string]bool // entries of which it was said what is ahead
}

// A step is one that a queue says, or that a process sends a put.
type step struct {
	steps.Step
	sent    *pb.PutRequest // of an entry,
	attempt int8           // by an attempt
}

func newRecorder(t *testing.T, srv *etcdfake.Server, processes int) *recorder {
	r := &recorder{
		Recorder: modeltrace.NewRecorder[step](t, srv, processes, retryEvenly),
		call:     make([]atomic.Int32, processes), known: make(map[string]bool),
	}
	for _, p := range r.Processes {
		queue.Observe(p.Host, r.say)
	}
	return r
}

// say records a step of a process. What is said of a lease that is lost is of no use any more: the model has ended the
// attempt, or has it queue again. What a read tells belongs where etcd has carried it out, but for the put: in the
// model that and its reply are two steps.
func (r *recorder) say(s steps.Step) {
	if s.Action == steps.Sends || s.Lease.Lost() != nil { // sends sees each copy
		return
	}
	read := int64(0)
	if s.Action == steps.Judged {
		id := modeltrace.IDOf(s.Key, s.Created)
		r.mu.Lock()
		if r.known[id] || s.Read != s.Created {
			read = s.Read
		}
		r.known[id] = true
		r.mu.Unlock()
	}
	r.Say(step{Step: s}, read)
}

// sends records a request of a process before it is sent, if it puts an entry.
func (r *recorder) sends(process int, c etcdfake.Call) {
	r.NoticeLosses()
	if kit.KindOf(c) != "enqueue" {
		return
	}
	for _, op := range c.Request.(*pb.TxnRequest).Success {
		if put := op.GetRequestPut(); put != nil {
			r.SayLater(step{sent: put, attempt: int8(r.call[process].Load())})
		}
	}
}

// A translation gives keys and leases the names that they have in the model.
type translation struct {
	of      *recorder
	owners  map[string]name // of a key: who has sent a put of it last
	entries map[string]name // of a key and its create revision
	tried   [maxAttempts][]int64
}

// events returns the run as the model has it. It reports false for a session with more leases than in the model.
func (r *recorder) events() ([]event, bool) {
	records, ok := r.Records()
	if !ok {
		return nil, false
	}
	tr := translation{of: r, owners: make(map[string]name), entries: make(map[string]name)}
	var events []event
	for _, rec := range records {
		if e, ok := tr.event(rec); ok {
			events = append(events, e)
		}
	}
	return append(events, event{action: ended}), true
}

func (tr *translation) event(r modeltrace.Record[step]) (event, bool) {
	switch {
	case r.Told != 0:
		return event{action: told, actor: tr.lease(int64(r.Told))}, true
	case r.Step == nil:
		c := tr.change(r.Changes)
		return event{action: changes, change: c}, c != change{}
	case r.Step.sent != nil:
		s := r.Step
		tr.owners[string(s.sent.Key)] = name{s.attempt, tr.try(s.attempt, s.sent.Lease), 0}
		return event{action: sends, actor: s.attempt}, true
	}
	s := r.Step
	e := event{actor: tr.entry(s.Key, s.Created).attempt}
	switch s.Action {
	case steps.Judged:
		e.action, e.ahead, e.delays = judged, nothing, s.Delays
		e.long, e.cut = s.LongTold, s.Unfound
		if s.Ahead != "" {
			e.ahead = tr.entry(s.Ahead, s.AheadCreated)
		}
	case steps.Waited:
		e.action = waited
	case steps.Holds:
		e.action = holds
	}
	return e, true
}

// entry returns the name of an entry that stands, or stood.
func (tr *translation) entry(key string, created int64) name {
	n, known := tr.entries[modeltrace.IDOf(key, created)]
	if !known && created != 0 {
		panic("no process has put the entry " + modeltrace.IDOf(key, created))
	}
	return n
}

// try returns which try of an attempt is under a lease.
func (tr *translation) try(attempt int8, lease int64) int8 {
	tries := &tr.tried[attempt]
	if !slices.Contains(*tries, lease) {
		*tries = append(*tries, lease)
	}
	return int8(slices.Index(*tries, lease))
}

func (tr *translation) lease(id int64) int8 {
	n, known := tr.of.Lease(id)
	if !known {
		panic(fmt.Sprintf("lease %x is of no session", id))
	}
	return n
}

// change translates what a revision has changed. A write to an entry is none.
func (tr *translation) change(changes []etcdfake.Change) (c change) {
	for _, ch := range changes {
		key := string(ch.Kv.Key)
		if strings.HasPrefix(key, "holdfast/session/") {
			if ch.Deleted {
				c.keyGone |= 1 << tr.lease(ch.Prev.Lease)
			} else {
				c.keyPut |= 1 << tr.lease(ch.Kv.Lease)
			}
			continue
		}
		switch {
		case ch.Deleted:
			c.gone |= tr.entry(key, ch.Prev.CreateRevision).bit()
		case ch.Prev == nil:
			tr.entries[modeltrace.IDOf(key, ch.Kv.CreateRevision)] = tr.owners[key]
			c.put |= tr.owners[key].bit()
		}
	}
	return c
}
