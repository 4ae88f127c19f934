// Package audit reports who held which lock and when, and which claims guards refused. Set an Auditor in the options of
// a mutex, an election, a guard or a fenced writer; without one, records go to a logger (see Log).
//
// Every hold gives one Granted record, or Attached, and then one of Released, Detached or Lost. Every claim that is
// refused by what has an Auditor option gives one Refused: the caller of etcdfence.Marks, memfence.Store or
// sqlfence.Column can record a refusal by Tell. The operator's functions of the guards (etcdfence, memfence, sqlfence)
// give Bumped and Reset, those of package admin Kicked and Removed. If the process dies, what it had not recorded is
// never recorded.
package audit

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
)

// Event is what a [Record] is about. An event of admin.Client.Events has this type, too: Released, Lost, Detached,
// Attached, Kicked and Removed mean the same in both.
type Event string

// The events.
const (
	Granted  Event = "granted"  // a holder acquired a lock or was elected
	Released Event = "released" // the holder released it, or its session; or MinHold has passed
	Detached Event = "detached" // the holder has detached it, and holds no more; a ticket keeps it
	Attached Event = "attached" // another holder goes on with it, by the ticket: same Token
	Lost     Event = "lost"     // it went without a release; Err is the cause
	Refused  Event = "refused"  // a guard refused a claim; Err is the reason
	Bumped   Event = "bumped"   // an operator raised the epoch
	Reset    Event = "reset"    // an operator deleted the mark of a resource
	Kicked   Event = "kicked"   // an administrator asked a holder to let go; Detail is the reason
	Removed  Event = "removed"  // an administrator took a lock away from its holder; Detail is the reason
)

// Record describes one event. Fields that do not apply to the event are zero.
type Record struct {
	Event    Event
	At       time.Time        // wall clock of this process
	Kind     holdfast.Kind    // "" if only the name is known
	Name     string           // of the lock or election
	Key      string           // in etcd: the holder's entry, the epoch or the mark
	Lease    clientv3.LeaseID // the holder's lease
	Token    holdfast.Token   `json:",omitzero"` // the fencing token of the holder or the claim
	Holder   string           // for people: owner, host and process, or the peer that presented the claim
	Resource string           // Refused, Reset: the guarded resource
	Mark     holdfast.Token   `json:",omitzero"` // Refused: the larger token the guard had seen. Reset: the token deleted
	Held     time.Duration    // Released, Detached, Lost: since Granted, or Downgrade, by whichever process
	TakenFor time.Duration    // Released: how long MinHold keeps the name taken after it
	Err      error            // Lost, Refused: the reason. Others: nil, or why the outcome is unknown
	By       string           // Kicked, Removed: the administrator
	Detail   string           // Bumped: the epochs before and after. Kicked, Removed: the reason
}

// Auditor receives records.
//
// Audit is called on the goroutine where the event happened, by several goroutines at once. A grant waits for it to
// return; a loss and a release do not. To write to a database, hand the record to a goroutine of your own. A panic in
// it is recovered and logged. ctx carries the caller's values and is never canceled.
//
// Clocks of machines differ: order the records of one name by Token.
type Auditor interface {
	Audit(ctx context.Context, r Record)
}

// Func is a function used as an [Auditor].
type Func func(ctx context.Context, r Record)

// Audit calls f.
func (f Func) Audit(ctx context.Context, r Record) { f(ctx, r) }

// Tell passes r to a, for guards of your own: a nil a is Log(nil), a zero At becomes the present time, an empty Holder
// of Bumped and Reset becomes this process, and a panic in a is recovered and logged.
func Tell(ctx context.Context, a Auditor, r Record) {
	if a == nil {
		a = Log(nil)
	}
	if r.At.IsZero() {
		r.At = time.Now()
	}
	if r.Holder == "" && (r.Event == Bumped || r.Event == Reset) {
		r.Holder = thisProcess()
	}
	defer func() {
		if v := recover(); v != nil {
			slog.ErrorContext(ctx, "holdfast: auditor panicked",
				"panic", v, "record", r, "stack", string(debug.Stack()))
		}
	}()
	a.Audit(context.WithoutCancel(ctx), r)
}

func thisProcess() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s pid %d", host, os.Getpid())
}
