package lease

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
)

// An Action is a step of the models in tests/models. Only a session, or an attempt, knows of it.
type Action string

const (
	// Granted: etcd has granted the lease.
	Granted Action = "granted"
	// Begins: the session has put its key, and keeps the lease from now on. It tells what becomes of the lease.
	Begins Action = "begins"
	// Renews: a copy of a renewal is about to be sent.
	Renews Action = "renews"
	// Reads: a copy of a proof, or of a put of the session key, is about to be sent.
	Reads Action = "reads"
	// Acknowledged: one of the copies of the renewal was answered.
	Acknowledged Action = "acknowledged"
	// Proved: one of the copies of the read was answered.
	Proved Action = "proved"
	// Confirmed: the renewal counts.
	Confirmed Action = "confirmed"
	// Suspends: the holders are told that the lease is suspended.
	Suspends Action = "suspended"
	// Loses: the lease is lost.
	Loses Action = "lost"

	// Sends: a put of an entry is sent. Etcd has not created the entry, or it is not known.
	Sends Action = "sends its put"
	// Judged: an entry knows what stands ahead, and whether it has to wait for the lock delay then.
	Judged Action = "knows what stands ahead"
	// Waited: its lock delay is over, and etcd has answered a read of it since.
	Waited Action = "has waited for its lock delay"
	// Holds: its attempt holds.
	Holds Action = "holds"
)

// A Step tells what a session has just done with a lease, or an attempt with an entry. All times are by the session's
// clock.
type Step struct {
	Action Action
	Lease  clientv3.LeaseID
	At     time.Duration
	Sent   time.Duration  `json:",omitzero"` // when the request was sent; of Granted, a request or a reply
	Term   uint64         `json:",omitzero"` // of Acknowledged and Proved: the Raft term in the reply
	Until  time.Duration  `json:",omitzero"` // of Granted and Confirmed: trusted-until
	TTL    time.Duration  `json:",omitzero"` // of Granted
	Margin time.Duration  `json:",omitzero"` // of Granted
	Cause  holdfast.Cause `json:",omitzero"` // of Loses

	EntryStep
}

// EntryStep has the details of a step of an attempt.
type EntryStep struct {
	Key     string `json:",omitzero"` // of the entry; empty: a step of the session
	Created int64  `json:",omitzero"` // the create revision of the entry; 0 of Sends
	Gate    int64  `json:",omitzero"` // of Sends: the mod revision of the session key that the put compares

	// Of Judged: the key and the create revision of the entry ahead, or nothing; whether the lock delay begins; and the
	// revision of the read that told it. The entry itself stood at that revision. A watch may have told a permit instead:
	// then the revision of the mark; 0 if too many sessions have ended to be read.
	Ahead        string `json:",omitzero"`
	AheadCreated int64  `json:",omitzero"`
	Delays       bool   `json:",omitzero"`
	Read         int64  `json:",omitzero"`
}

type observerKey struct{}

// Observe returns a context for session.New. The session then calls f at each step of its own and of its attempts, for
// a test that compares them with a model. The goroutines that know of them tell the steps of entries, requests and
// replies; all else is told under the mutex of the lease, in order. f must not call this package.
func Observe(ctx context.Context, f func(Step)) context.Context {
	return context.WithValue(ctx, observerKey{}, f)
}

// ObserverIn returns the f of Observe in a context, or nil.
func ObserverIn(ctx context.Context) func(Step) {
	f, _ := ctx.Value(observerKey{}).(func(Step))
	return f
}
