package queuemodel

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/queue"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
)

// A recorder records a run: the changes of etcd's store, and the steps that the queues of some processes say. That a
// lease is lost is read from the lease, whenever anything happens.
type recorder struct {
	srv       *etcdfake.Server
	processes []*kit.Process
	call      []atomic.Int32 // of each process: which attempt of the scenario its call is

	mu      sync.Mutex // protects what follows
	records []record
	drained int // changes of the store that are recorded

	lateMu sync.Mutex // protects what follows; the fates of requests are drawn under the server's lock
	leases map[clientv3.LeaseID]int8
	counts []int8 // of each process: its leases
	lost   leaseSet
	late   []record // of losses and of puts that were sent, not yet among the records
}

// A record is an event, with the keys and revisions of the store.
type record struct {
	at      time.Time
	changes []etcdfake.Change // of one revision
	step    *queue.Step
	told    clientv3.LeaseID
	sent    *pb.PutRequest // of an entry,
	attempt int8           // by an attempt
}

func newRecorder(t *testing.T, srv *etcdfake.Server, processes int) *recorder {
	r := &recorder{
		srv: srv, call: make([]atomic.Int32, processes), counts: make([]int8, processes),
		leases: make(map[clientv3.LeaseID]int8),
	}
	for range processes {
		p := kit.Start(t, srv, retryEvenly)
		r.processes = append(r.processes, p)
		queue.Observe(p.Host, r.step)
	}
	r.drained = len(srv.History("holdfast/"))
	r.noticeLosses()
	return r
}

// step records a step of a process. What is said of a lease that is lost is of no use any more: the model has ended the
// attempt, or has it queue again.
func (r *recorder) step(s queue.Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drain()
	if s.Action != queue.Sends && s.Lease.Lost() == nil { // sends sees each copy
		r.records = append(r.records, record{at: time.Now(), step: &s})
	}
}

// sends records a request of a process before it is sent, if it puts an entry.
func (r *recorder) sends(process int, c etcdfake.Call) {
	r.noticeLosses()
	if kit.KindOf(c) != "enqueue" {
		return
	}
	r.lateMu.Lock()
	defer r.lateMu.Unlock()
	for _, op := range c.Request.(*pb.TxnRequest).Success {
		if put := op.GetRequestPut(); put != nil {
			r.late = append(r.late, record{at: time.Now(), sent: put, attempt: int8(r.call[process].Load())})
		}
	}
}

// drain records what has happened in the store, and the losses. r.mu is held.
func (r *recorder) drain() {
	changes := r.srv.History("holdfast/")
	for _, c := range changes[r.drained:] {
		if last := len(r.records) - 1; last >= 0 && r.records[last].revision() == c.Revision {
			r.records[last].changes = append(r.records[last].changes, c)
		} else {
			r.records = append(r.records, record{at: c.At, changes: []etcdfake.Change{c}})
		}
	}
	r.drained = len(changes)
	r.noticeLosses()
	r.lateMu.Lock()
	defer r.lateMu.Unlock()
	for _, late := range r.late {
		i := slices.IndexFunc(r.records, func(other record) bool { return other.at.After(late.at) })
		if i < 0 {
			i = len(r.records)
		}
		r.records = slices.Insert(r.records, i, late)
	}
	r.late = nil
}

// noticeLosses is called before each request and at each step, so between a loss and what comes of it.
func (r *recorder) noticeLosses() {
	r.lateMu.Lock()
	defer r.lateMu.Unlock()
	for n, p := range r.processes {
		l := p.Host.Lease()
		number, known := r.leases[l.ID()]
		if !known {
			number = 2*int8(n) + r.counts[n]
			r.leases[l.ID()] = number
			r.counts[n]++
		}
		if l.Lost() != nil && !r.lost.has(number) {
			r.lost |= 1 << number
			r.late = append(r.late, record{at: time.Now(), told: l.ID()})
		}
	}
}

// isOfSession reports whether a lease has become that of a session.
func (r *recorder) isOfSession(lease int64) bool {
	r.lateMu.Lock()
	defer r.lateMu.Unlock()
	_, known := r.leases[clientv3.LeaseID(lease)]
	return known
}

// isFirst reports whether a lease is the first of its session.
func (r *recorder) isFirst(lease int64) bool {
	r.lateMu.Lock()
	defer r.lateMu.Unlock()
	number, known := r.leases[clientv3.LeaseID(lease)]
	return known && number%2 == 0
}

// revision is that of the store of a record of changes; otherwise 0.
func (r record) revision() int64 {
	if len(r.changes) == 0 {
		return 0
	}
	return r.changes[0].Revision
}

// A translation gives keys and leases the names that they have in the model.
type translation struct {
	leases  map[clientv3.LeaseID]int8
	owners  map[string]name // of a key: who has sent a put of it last
	entries map[string]name // of a key and its create revision
	tried   [maxAttempts][]int64
}

// events returns the run as the model has it. It reports false for a session with more leases than in the model.
func (r *recorder) events() ([]event, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drain()
	if slices.ContainsFunc(r.counts, func(n int8) bool { return n > 2 }) {
		return nil, false
	}
	tr := translation{leases: r.leases, owners: make(map[string]name), entries: make(map[string]name)}
	var events []event
	for _, rec := range r.inOrderOfReads() {
		if e, ok := tr.event(rec); ok {
			events = append(events, e)
		}
	}
	return append(events, event{action: ended}), true
}

// inOrderOfReads moves what a process knows by a read to where etcd has carried out the read. In the model a read and
// its reply are one step, but for the put.
func (r *recorder) inOrderOfReads() []record {
	var ordered []record
	known := make(map[string]bool)
	for _, rec := range r.records {
		at := len(ordered)
		if s := rec.step; s != nil && s.Action == queue.Judged {
			byReply := !known[modeltrace.IDOf(s.Key, s.Created)] && s.Read == s.Created
			known[modeltrace.IDOf(s.Key, s.Created)] = true
			if byReply {
				ordered = append(ordered, rec)
				continue
			}
			if i := slices.IndexFunc(ordered, func(o record) bool { return o.revision() > s.Read }); i >= 0 {
				at = i
			}
		}
		ordered = slices.Insert(ordered, at, rec)
	}
	return ordered
}

func (tr *translation) event(r record) (event, bool) {
	switch {
	case r.told != 0:
		return event{action: told, actor: tr.lease(int64(r.told))}, true
	case r.sent != nil:
		tr.owners[string(r.sent.Key)] = name{r.attempt, tr.try(r.attempt, r.sent.Lease), 0}
		return event{action: sends, actor: r.attempt}, true
	case r.step == nil:
		c := tr.change(r.changes)
		return event{action: changes, change: c}, c != change{}
	}
	s, e := r.step, event{actor: tr.entry(r.step.Key, r.step.Created).attempt}
	switch s.Action {
	case queue.Judged:
		e.action, e.ahead, e.delays = judged, nothing, s.Delays
		e.long, e.cut = s.LongTold, s.Unfound
		if s.Ahead != "" {
			e.ahead = tr.entry(s.Ahead, s.AheadCreated)
		}
	case queue.Waited:
		e.action = waited
	case queue.Holds:
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
	n, known := tr.leases[clientv3.LeaseID(id)]
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
