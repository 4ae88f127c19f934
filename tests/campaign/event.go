//go:build linux

package main

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/tests/internal/family"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// A job is what a worker is told.
type job struct {
	ID         string
	Names      []string // of locks and semaphores; the limit of the last semaphore changes
	Endpoints  []string
	Prefix     string // of all keys in etcd
	User       string // NAME:PASSWORD, of a cluster that asks for users
	TTL        time.Duration
	ClockRate  float64 // of the session's clock; 1: as all others
	Seed       uint64
	Goroutines int
	Shards     string // the name of shards that all workers share
	Log        string // the file for what the session logs
	Crowd      int    // how many callers come at once when it is told to
	Sets       string // the socket of the sets, if it is to add to them and to do nothing else
}

// An event is a report of a worker.
type event struct {
	What string // one of those below
	Who  string // the owner of the entries: one call; of closed and cannot, the worker
	Kind family.Kind
	Err  string

	Parts []oracle.Part // of wants
	Hold  *oracle.Hold  // of held and ended: what is known of it until then

	callReport
	Removal removal `json:",omitzero"` // of byHand

	Stretch stretch    // of heldUpstream
	Overrun overrun    `json:",omitzero"` // of overran and returned
	Used    registerOp // of used

	Step lease.Step `json:",omitzero"` // of stepped

	Renewal said         `json:",omitzero"` // of renewed
	Stall   oracle.Fault `json:",omitzero"` // of stalled
}

// A callReport is what a worker says of a call beside that.
type callReport struct {
	MinHold    time.Duration `json:",omitzero"` // of held: by the clock of its session, or by others if that is slower
	Downgraded bool          `json:",omitzero"` // of ended
	Detached   bool          `json:",omitzero"` // of ended: a ticket has it
	Attached   bool          `json:",omitzero"` // of held: by a ticket
	Try        bool          `json:",omitzero"` // of wants: TryLock of a mutex
	Taken      bool          `json:",omitzero"` // of failed: TryLock of a mutex found another caller
	Over       bool          `json:",omitzero"` // of failed: the deadline of the call has passed
}

// What a worker reports.
const (
	wants  = "wants"  // a call begins
	held   = "held"   // it has returned
	failed = "failed" // it has returned an error
	ended  = "ended"  // a hold has ended
	cannot = "cannot" // a name could not be acquired after all faults were healed
	closed = "closed" // the session is closed

	stepped      = "stepped"       // an entry has made a step of its model
	renewed      = "renewed"       // a session has made a step of its lease's model
	stalled      = "stalled"       // the worker did not run for a time
	overran      = "overran"       // OnOverrun was called
	returned     = "returned"      // a function under a hold is about to return
	heldUpstream = "held upstream" // a hold of etcd's own lock has ended
	used         = "used"          // a holder has written or read a register
	byHand       = "by hand"       // its lease is about to be revoked, or its entry deleted
	refused      = "refused"       // a guarded write after the end of a hold
)

// text returns the text of an error, or "".
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// sinceBoot is the same clock in all processes.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}
