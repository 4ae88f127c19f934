package oracle

import (
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
)

// A Record is what happened. All times are since one moment, by one clock.
type Record struct {
	Changes []Change          // of all keys, in order of their revisions
	Wanted  map[string][]Part // by owner: in which queues a call has entries; it need not have all calls
	Holds   []*Hold
	Leases  map[clientv3.LeaseID]Lease
	Faults  []Fault

	// Late is how much later than it was made a change may have been seen, at most.
	Late time.Duration

	// Fast: but for faults, a request and its reply take no longer than 100 ms.
	Fast bool

	// Lossy: messages are lost, and nothing says so. A session pays for copies by time then: they are up to 5 s apart, and
	// two in a row may be lost, too.
	Lossy bool

	// Prompt: but for Faults and Unsteady times nothing delays a request, so that a release must be.
	Prompt   bool
	Unsteady []Fault // faults of the cluster, as a change of its leader, that may delay a hand-over and nothing else

	// Sick is when a minority of the members hangs, lags, or is cut off from some: a waiter whose watch is there may learn
	// late that it is first. What holders are promised holds.
	Sick []Fault
}

// A Change is one put or deletion. It was made between two times.
type Change struct {
	Revision      int64
	After, Before time.Duration
	Deleted       bool
	Cause         Cause            // of a deletion
	Kv            *mvccpb.KeyValue // of a deletion: the key
	Prev          *mvccpb.KeyValue // before the change; nil: the key did not exist
}

// A Cause is why a key was deleted.
type Cause int

// The causes.
const (
	ByRequest    Cause = iota // of the entry's session
	ByLease                   // its lease expired, or was revoked by its session when that closed
	ByDeletion                // another client deleted it
	ByRevocation              // another client revoked its lease
	ByDeposed                 // another member than etcd's leader revoked its lease, as one that had led before
)

func (c Cause) String() string {
	return [...]string{"a request of its session", "its lease expired, or its session was closed", "deleted by hand",
		"its lease was revoked by hand", "its lease was revoked by another member than the leader"}[c]
}

func (c Cause) forced() bool  { return c >= ByDeletion }
func (c Cause) revoked() bool { return c >= ByRevocation }

// A Lease is that of a session.
type Lease struct {
	Process string
	Ended   time.Duration // when its session gave it up, so that it holds nothing; 0: did not
}

// A Fault is a time in which requests of a process may fail.
type Fault struct {
	Process  string // "": the cluster fails, for all
	From, To time.Duration

	// NoQuorum: no request is answered, for longer than five quarters of a lock delay, so none holds meanwhile by a delay.
	NoQuorum bool
}

// Everywhere as the Process of a Fault is all processes.
const Everywhere = "*"

// A Hold is one acquisition as its process saw it.
type Hold struct {
	Who     string // the owner of its entries, and of those of no other call
	Process string
	Parts   []Part // the queues that it has entries in

	// What its methods return. A reader has no Token.
	Key         string
	Lease       clientv3.LeaseID
	Token       holdfast.Token `json:",omitzero"`
	AcquiredAt  int64          // AcquiredRevision
	Granted     time.Duration  // when the call had returned
	First, Last time.Duration  // when the first Check that returned nil had returned, when the last was called; or 0
	Suspended   time.Duration  // when the last Check that returned ErrSuspended was called, or 0
	Gap         time.Duration  // the longest time between two Checks, in which the process did not run
	SlowPolls   bool           `json:",omitzero"` // its lease was not watched, nor polls answered in half a lock delay
	Told        time.Duration  // when it was told of a loss, or 0
	Ended       time.Duration  // when it was told of a loss, or its release began; 0: did not end
	Unlocked    time.Duration  // when a release had returned nil, or 0
	TakenUntil  time.Duration  // for how long MinHold keeps the name taken if the release is confirmed, or 0
	rev         int64          // of the puts of its entries
	entries     []*entry
}
