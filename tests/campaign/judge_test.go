//go:build linux

package main

import (
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/tests/internal/raftlog"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// An entry that MinHold keeps is on a lease of its own. When an administrator revoked that one, the name was said to be
// free before MinHold was over, as if holdfast had let it go.
func TestCauseOfADeletionWhenALeaseIsRevokedByHand(t *testing.T) {
	const session, other = 0xa, 0xb
	key := []byte("holdfast/lock/x/@/a-ABCDEFGHIJKLMNOP")
	for _, c := range []struct {
		on, revoked clientv3.LeaseID
		withSession bool // the session key is deleted at the same revision
		want        oracle.Cause
	}{
		{on: other, revoked: other, want: oracle.ByDeletion},
		{on: other, want: oracle.ByLease},
		{on: session, revoked: session, withSession: true, want: oracle.ByRevocation},
		{on: session, withSession: true, want: oracle.ByLease},
		{on: session, want: oracle.ByRequest},
	} {
		f := &round{diary: diary{revoked: map[clientv3.LeaseID]bool{c.revoked: true}}}
		changes := []oracle.Change{{Revision: 5, Deleted: true, Kv: &mvccpb.KeyValue{Key: key},
			Prev: &mvccpb.KeyValue{Key: key, Lease: int64(c.on)}}}
		if c.withSession {
			changes = append(changes, oracle.Change{Revision: 5, Deleted: true,
				Kv: &mvccpb.KeyValue{Key: []byte(oracle.SessionKey(session))}})
		}
		f.setCauses(changes, &raftlog.Log{})
		if got := changes[0].Cause; got != c.want {
			t.Errorf("on lease %x, lease %x revoked by hand: %v, want %v", c.on, c.revoked, got, c.want)
		}
	}
}

// An entry that was attached is its new session's. Its key names the former one, which has nothing to do with its end.
func TestCauseOfADeletionOfAnAttachedEntry(t *testing.T) {
	const former, ticket, session = 0xa, 0xb, 0xc
	key := []byte("holdfast/lock/x/@/a-ABCDEFGHIJKLMNOP")
	value := func(detached time.Time) []byte {
		return []byte(layout.Value{Queued: time.Unix(1e9, 0), Detached: detached}.Encode())
	}
	at := func(lease int64, value []byte) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: key, CreateRevision: 2, Lease: lease, Value: value}
	}
	held, waits := at(former, value(time.Time{})), at(ticket, value(time.Unix(1e9, 0)))
	goesOn := at(session, value(time.Time{}))
	for name, c := range map[string]struct {
		last       *mvccpb.KeyValue
		revoked    clientv3.LeaseID
		sessionKey string // that is deleted at the same revision
		want       oracle.Cause
	}{
		"released":                          {last: goesOn, want: oracle.ByRequest},
		"its session has ended":             {goesOn, 0, oracle.SessionKey(session), oracle.ByLease},
		"the former session has ended":      {goesOn, 0, oracle.SessionKey(former), oracle.ByRequest},
		"its session's lease was revoked":   {goesOn, session, oracle.SessionKey(session), oracle.ByRevocation},
		"the ticket has run out":            {last: waits, want: oracle.ByLease},
		"the ticket was removed by hand":    {last: waits, revoked: ticket, want: oracle.ByDeletion},
		"the former lease was revoked, too": {last: goesOn, revoked: former, want: oracle.ByRequest},
	} {
		f := &round{diary: diary{revoked: map[clientv3.LeaseID]bool{c.revoked: true}}}
		changes := []oracle.Change{{Revision: 2, Kv: held}, {Revision: 3, Kv: waits, Prev: held}}
		if c.last == goesOn {
			changes = append(changes, oracle.Change{Revision: 4, Kv: goesOn, Prev: waits})
		}
		gone := len(changes)
		changes = append(changes, oracle.Change{Revision: 5, Deleted: true, Kv: &mvccpb.KeyValue{Key: key}, Prev: c.last})
		if c.sessionKey != "" {
			changes = append(changes, oracle.Change{Revision: 5, Deleted: true,
				Kv: &mvccpb.KeyValue{Key: []byte(c.sessionKey)}})
		}
		f.setCauses(changes, &raftlog.Log{})
		if got := changes[gone].Cause; got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A process that did not run tells late. That is told apart, and a promise broken beside it stays.
func TestViolationOfAProcessThatDidNotRunIsOfTheMachine(t *testing.T) {
	const s = time.Second
	late := heldFrom(10*s, 30*s)
	h, gone := late.Record.Holds[0], &late.Record.Changes[1]
	gone.Cause = oracle.ByRevocation
	h.Last, h.Ended, h.Unlocked, h.Told = gone.Before+4*s, gone.Before+4*s, 0, gone.Before+4*s
	for name, c := range map[string]struct {
		stalls         []oracle.Fault
		broken, beside int
	}{
		"it ran":               {nil, 1, 0},
		"another did not run":  {[]oracle.Fault{{Process: "process 1", From: gone.Before, To: gone.Before + 4*s}}, 1, 0},
		"it did not run":       {[]oracle.Fault{{Process: h.Process, From: gone.Before, To: gone.Before + 3*s}}, 0, 1},
		"it ran before and so": {[]oracle.Fault{{Process: h.Process, From: 1 * s, To: 2 * s}}, 1, 0},
		"it had short gaps":    {shortGaps(h.Process, gone.Before, gone.Before+4*s), 1, 0},
	} {
		late.Stalls = c.stalls
		late.judge()
		if len(late.violations) != c.broken || len(late.ofMachine) != c.beside {
			t.Errorf("%s: violations %q, of the machine %q", name, late.violations, late.ofMachine)
		}
	}
}

// The session counts MinHold by its own clock. The judge took it for too short by 37 ms when that clock was fast.
func TestMinHoldOfAFastClockIsShorterByOthers(t *testing.T) {
	const minHold = 450 * time.Millisecond
	if got := byOthers(minHold, 1+mostDrift); got > minHold-37*time.Millisecond || got < minHold-38*time.Millisecond {
		t.Errorf("%v by a fast clock", got)
	}
	if got := byOthers(minHold, 1-mostDrift); got != minHold {
		t.Errorf("%v by a slow clock: etcd's, which keeps the name, is right", got)
	}
}

// shortGaps are many gaps of a process.
func shortGaps(process string, from, to time.Duration) (all []oracle.Fault) {
	for ; from < to; from += time.Second {
		all = append(all, oracle.Fault{Process: process, From: from, To: from + 4*stall})
	}
	return all
}
