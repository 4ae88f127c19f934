package lease

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
)

// An Action is one of the steps of tests/models/leasemodel that only the session knows of.
type Action string

const (
	// Granted: etcd has granted the lease.
	Granted Action = "granted"
	// Announced: its session key is put. From now on the session keeps the lease, and tells what becomes of it.
	Announced Action = "announced"
	// Renews: a copy of a renewal is about to be sent.
	Renews Action = "renews"
	// Reads: a copy of the read that proves the renewal, or of a put of the session key, is about to be sent.
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
)

// A Step is what a session has just done with a lease. All times are by its clock.
type Step struct {
	Action Action
	Lease  clientv3.LeaseID
	At     time.Duration
	Sent   time.Duration  `json:",omitzero"` // when the request was sent; of Granted, a request or a reply
	Term   uint64         `json:",omitzero"` // of Acknowledged and Proved: the one in the reply
	Until  time.Duration  `json:",omitzero"` // of Granted and Confirmed: trusted-until
	TTL    time.Duration  `json:",omitzero"` // of Granted
	Margin time.Duration  `json:",omitzero"` // of Granted
	Cause  holdfast.Cause `json:",omitzero"` // of Loses
}

type observerKey struct{}

// Observe returns a context for session.New with which f is called at each step of the session, for a test that
// compares them with the model's. Requests and replies are told by the goroutines that send and hear them; all else
// under the mutex of the lease, so that it is in order. f must not call this package.
func Observe(ctx context.Context, f func(Step)) context.Context {
	return context.WithValue(ctx, observerKey{}, f)
}

// ObserverIn returns what Observe has put into a context; nil if it has not.
func ObserverIn(ctx context.Context) func(Step) {
	f, _ := ctx.Value(observerKey{}).(func(Step))
	return f
}
