package modeltrace

import (
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// A Recorder records a run of some processes: the changes of etcd's store, the losses of their leases, and the steps
// that the code says. That a lease is lost is read from the lease, whenever anything happens.
type Recorder[Step any] struct {
	Processes []*kit.Process
	srv       *etcdfake.Server

	mu      sync.Mutex // protects what follows
	records []Record[Step]
	drained int // changes of the store that are recorded

	lateMu sync.Mutex // protects what follows; the fates of requests are drawn under the server's lock
	leases map[clientv3.LeaseID]int8
	counts []int8 // of each process: its leases
	lost   map[int8]bool
	late   []Record[Step] // not yet among the records
}

// A Record is what has happened at a moment: one of these.
type Record[Step any] struct {
	At      time.Time
	Changes []etcdfake.Change // of one revision
	Told    clientv3.LeaseID  // it is lost, as its session knows
	Step    *Step
	Read    int64 // of Step: the revision of the read that told it; 0: of none
}

// Revision is that of the store of a record of changes; otherwise 0.
func (r Record[Step]) Revision() int64 {
	if len(r.Changes) == 0 {
		return 0
	}
	return r.Changes[0].Revision
}

// NewRecorder starts processes, and records from then on.
func NewRecorder[Step any](
	t *testing.T, srv *etcdfake.Server, processes int, change ...func(*session.Options),
) *Recorder[Step] {
	r := &Recorder[Step]{
		srv: srv, counts: make([]int8, processes), leases: make(map[clientv3.LeaseID]int8), lost: make(map[int8]bool),
	}
	for range processes {
		r.Processes = append(r.Processes, kit.Start(t, srv, change...))
	}
	r.drained = len(srv.History("holdfast/"))
	r.NoticeLosses()
	return r
}

// Say records a step that was told by a read at a revision; 0: by none.
func (r *Recorder[Step]) Say(s Step, read int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drain()
	r.records = append(r.records, Record[Step]{At: time.Now(), Step: &s, Read: read})
}

// SayLater is Say of a step that no read told, for who must not wait for the server: a fate of a request.
func (r *Recorder[Step]) SayLater(s Step) {
	r.lateMu.Lock()
	defer r.lateMu.Unlock()
	r.late = append(r.late, Record[Step]{At: time.Now(), Step: &s})
}

// drain records what has happened in the store, and the losses. r.mu is held.
func (r *Recorder[Step]) drain() {
	changes := r.srv.History("holdfast/")
	for _, c := range changes[r.drained:] {
		if last := len(r.records) - 1; last >= 0 && r.records[last].Revision() == c.Revision {
			r.records[last].Changes = append(r.records[last].Changes, c)
		} else {
			r.records = append(r.records, Record[Step]{At: c.At, Changes: []etcdfake.Change{c}})
		}
	}
	r.drained = len(changes)
	r.NoticeLosses()
	r.lateMu.Lock()
	defer r.lateMu.Unlock()
	for _, late := range r.late {
		i := slices.IndexFunc(r.records, func(other Record[Step]) bool { return other.At.After(late.At) })
		if i < 0 {
			i = len(r.records)
		}
		r.records = slices.Insert(r.records, i, late)
	}
	r.late = nil
}

// NoticeLosses is called before each request and at each step, so between a loss and what comes of it.
func (r *Recorder[Step]) NoticeLosses() {
	r.lateMu.Lock()
	defer r.lateMu.Unlock()
	for n, p := range r.Processes {
		l := p.Host.Lease()
		number, known := r.leases[l.ID()]
		if !known {
			number = 2*int8(n) + r.counts[n]
			r.leases[l.ID()] = number
			r.counts[n]++
		}
		if l.Lost() != nil && !r.lost[number] {
			r.lost[number] = true
			r.late = append(r.late, Record[Step]{At: time.Now(), Told: l.ID()})
		}
	}
}

// Lease returns the number of a lease: 2n is the first one of process n, 2n+1 the next. It reports false for a lease
// that is of no session yet.
func (r *Recorder[Step]) Lease(id int64) (int8, bool) {
	r.lateMu.Lock()
	defer r.lateMu.Unlock()
	number, known := r.leases[clientv3.LeaseID(id)]
	return number, known
}

// Records returns the run. What a process knows by a read stands where etcd has carried out the read. It reports false
// if a process had more than two leases.
func (r *Recorder[Step]) Records() (ordered []Record[Step], ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drain()
	for _, rec := range r.records {
		at := len(ordered)
		if rec.Read != 0 {
			if i := slices.IndexFunc(ordered, func(o Record[Step]) bool { return o.Revision() > rec.Read }); i >= 0 {
				at = i
			}
		}
		ordered = slices.Insert(ordered, at, rec)
	}
	return ordered, !slices.ContainsFunc(r.counts, func(n int8) bool { return n > 2 })
}
