package queue

import (
	"github.com/holdfast-go/holdfast/internal/inquest"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// An Action is one of the steps of tests/models/queuemodel and semmodel that only the client knows of.
type Action string

const (
	// Sends: a put of the entry is sent. Etcd has not created the entry, or it is not known.
	Sends Action = "sends its put"
	// Judged: the entry knows what stands ahead, and whether it has to wait for the lock delay then.
	Judged Action = "knows what stands ahead"
	// Waited: its lock delay is over, and etcd has answered a read of it since.
	Waited Action = "has waited for its lock delay"
	// Holds: its attempt holds.
	Holds Action = "holds"
)

// A Step is what an entry has just done.
type Step struct {
	Action  Action
	Key     string
	Created int64 // the create revision of the entry; 0 of Sends

	Lease *lease.Lease `json:"-"`

	// Of Sends: the mod revision of the session key that the put compares.
	Gate int64 `json:",omitzero"`

	// Of Judged: the key and the create revision of the entry ahead, or nothing; whether the lock delay begins; and the
	// revision of the read that told it, at which the entry itself stood. A permit may be told by a watch instead: then
	// the revision of the mark; 0 if too many sessions have ended to be read.
	Ahead        string `json:",omitzero"`
	AheadCreated int64  `json:",omitzero"`
	Delays       bool   `json:",omitzero"`
	Read         int64  `json:",omitzero"`

	// Of Judged. LongTold: the lock delay would begin, had the former holder not been told longer ago than that.
	// Unfound: the lock delay begins because what had to be read was compacted, or was not found in time.
	LongTold bool `json:",omitzero"`
	Unfound  bool `json:",omitzero"`

	// Of Judged by a permit: it is the first waiter. Otherwise it is far behind the entry ahead, or may hold.
	First bool `json:",omitzero"`
}

// Observe has f called at each step of the session's attempts, for a test that compares them with the model's. It is
// called before the first acquisition. f must not call this package.
func Observe(host lease.Host, f func(Step)) { sharedBy(host).steps = f }

// say tells the observer of a step. Entries that the sweeper has found are no attempt's.
func (e *entry) say(a Action) {
	if f := e.observer(); f != nil {
		f(Step{Action: a, Key: e.key, Created: e.rev, Lease: e.of.lease})
	}
}

func (e *entry) observer() func(Step) {
	if e.ticket == nil {
		return nil
	}
	return e.q.shared.steps
}

// saySends is say of a put that compares a gate.
func (e *entry) saySends(gate int64) {
	if f := e.observer(); f != nil {
		f(Step{Action: Sends, Key: e.key, Lease: e.of.lease, Gate: gate})
	}
}

// sayJudged is say after setAhead. With delays the lock delay has begun. found and err are of an inquest, or err says
// that history is compacted.
func (w *wait) sayJudged(delays bool, found inquest.Finding, err error) {
	f := w.e.observer()
	if f == nil {
		return
	}
	s := judged(w, delays)
	s.LongTold, s.Unfound = found == inquest.LongTold, err != nil || delays && w.ahead == nil && w.others.Unknown
	s.Read = w.looked
	f(s)
}

func judged(w *wait, delays bool) Step {
	s := Step{Action: Judged, Key: w.e.key, Created: w.e.rev, Lease: w.e.of.lease, Delays: delays}
	if w.ahead != nil {
		s.Ahead, s.AheadCreated = string(w.ahead.Key), w.ahead.CreateRevision
	}
	return s
}
