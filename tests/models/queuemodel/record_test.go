package queuemodel

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"

	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
)

// A recorder records a run: the changes of etcd's store, and the steps that the queues of some processes say.
type recorder struct {
	*modeltrace.Recorder[step]
	call  []atomic.Int32  // of each process: which attempt of the scenario its call is
	gates map[int64]int64 // by lease: the mod revision of its session key, as recording began
}

// A step is one that a queue says, or that a process sends a put.
type step struct {
	queue.Step
	sent    *pb.PutRequest // of an entry,
	gate    int64          // which compares this mod revision of the session key
	attempt int8           // by an attempt,
	caller  action         // or what its caller does: holds, letsGo
}

func newRecorder(t *testing.T, srv *etcdfake.Server, processes int) *recorder {
	r := &recorder{
		Recorder: modeltrace.NewRecorder[step](t, srv, processes, retryEvenly),
		call:     make([]atomic.Int32, processes), gates: make(map[int64]int64),
	}
	for _, kv := range srv.Keys("holdfast/session/") {
		r.gates[kv.Lease] = kv.ModRevision
	}
	for _, p := range r.Processes {
		queue.Observe(p.Host, r.say)
	}
	return r
}

// say records a step of a process. What is said of a lease that is lost is of no use any more: the model has ended the
// attempt, or has it queue again. What a look tells belongs where etcd has carried it out.
func (r *recorder) say(s queue.Step) {
	if s.Action == queue.Sends || s.Lease.Lost() != nil { // sends sees each copy
		return
	}
	read := int64(0)
	if s.Action == queue.Judged {
		read = s.Read
	}
	r.Say(step{Step: s}, read)
}

// does records that the caller of an attempt holds; or that it releases, or has been told that its hold is lost.
func (r *recorder) does(attempt int8, what action) { r.Say(step{caller: what, attempt: attempt}, 0) }

// sends records a request of a process before it is sent, if it puts an entry.
func (r *recorder) sends(process int, c etcdfake.Call) {
	r.NoticeLosses()
	if kit.KindOf(c) != "enqueue" {
		return
	}
	txn := c.Request.(*pb.TxnRequest)
	for _, op := range txn.Success {
		if put := op.GetRequestPut(); put != nil && strings.Contains(string(put.Key), "/@/") {
			gate := txn.Compare[0].GetModRevision()
			r.SayLater(step{sent: put, gate: gate, attempt: int8(r.call[process].Load())})
		}
	}
}

// A translation gives keys and leases the numbers that they have in the model.
type translation struct {
	of    *recorder
	owner map[string]int8 // of the key of an entry: which attempt has sent a put of it
	gates map[int64]int64 // by lease: the mod revision of its session key
}

// events returns the run as the model has it. It reports false for a session with more leases than in the model.
func (r *recorder) events() ([]event, bool) {
	records, ok := r.Records()
	if !ok {
		return nil, false
	}
	tr := translation{of: r, owner: make(map[string]int8), gates: r.gates}
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
	case r.Step.caller != unseen:
		return event{action: r.Step.caller, actor: r.Step.attempt}, true
	case r.Step.sent != nil:
		s := r.Step
		tr.owner[string(s.sent.Key)] = s.attempt
		stale := tr.gates[s.sent.Lease] != s.gate
		return event{action: sends, actor: s.attempt, pair: tr.lease(s.sent.Lease) % 2, stale: stale}, true
	}
	s := r.Step
	e := event{actor: tr.owner[s.Key]}
	switch s.Action {
	case queue.Judged:
		e.action, e.ahead, e.delays = judged, nothing, s.Delays
		if s.Ahead != "" {
			e.ahead = tr.key(s.Ahead)
		}
	case queue.Waited:
		e.action = waited
	case queue.Holds:
		e.action = granted
	}
	return e, true
}

// key returns the number of the key of an entry that was put.
func (tr *translation) key(key string) int8 {
	attempt, known := tr.owner[key]
	lease, _ := layout.LeaseOf(key)
	if !known {
		panic("no process has put the entry " + key)
	}
	return attempt + tr.lease(int64(lease))%2*int8(len(traced.attempts))
}

func (tr *translation) lease(id int64) int8 {
	n, known := tr.of.Lease(id)
	if !known {
		panic(fmt.Sprintf("lease %x is of no session", id))
	}
	return n
}

// change translates what a revision has changed.
func (tr *translation) change(changes []etcdfake.Change) (c change) {
	for _, ch := range changes {
		key := string(ch.Kv.Key)
		entry, isClaim := modeltrace.EntryOf(key)
		switch {
		case strings.HasPrefix(key, "holdfast/session/"):
			if ch.Deleted {
				delete(tr.gates, ch.Prev.Lease)
				c.keyGone |= bit(tr.lease(ch.Prev.Lease))
			} else {
				tr.gates[ch.Kv.Lease] = ch.Revision
				c.keyPut |= bit(tr.lease(ch.Kv.Lease))
			}
		case isClaim && ch.Deleted:
			c.unclaimed |= bit(tr.key(entry))
		case isClaim:
			c.claimed |= bit(tr.key(entry))
		case ch.Deleted:
			c.gone |= bit(tr.key(key))
		case ch.Prev == nil:
			c.put |= bit(tr.key(key))
		case ch.Kv.Lease != ch.Prev.Lease:
			c.moved |= bit(tr.key(key))
		case isAskedFor(ch.Kv) && !isAskedFor(ch.Prev): // its own session writes that it is held
			c.written |= bit(tr.key(key))
		}
	}
	return c
}

// isAskedFor reports whether an administrator asks for an entry.
func isAskedFor(entry *mvccpb.KeyValue) bool {
	v, _ := layout.DecodeValue(entry.Value)
	return v.Notice.Given()
}
