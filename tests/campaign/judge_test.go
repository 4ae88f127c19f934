//go:build linux

package campaign

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/tests/internal/raftlog"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

const (
	// afterFault is how long a fault has effects after its end: connections are made again, a leader is elected.
	afterFault = 3 * time.Second

	// late is how much later than it was made a change may have been seen.
	late = 2 * time.Second
)

// judge has the oracle compare what the processes have reported with the changes of the store.
func (f *round) judge(t *testing.T, changes []oracle.Change, log *raftlog.Log) {
	t.Helper()
	f.setCauses(changes, log)
	record := &oracle.Record{Changes: changes, Late: late, Fast: true,
		Wanted: make(map[string][]oracle.Part), Leases: make(map[clientv3.LeaseID]oracle.Lease)}
	for _, d := range f.faults {
		record.Faults = append(record.Faults, oracle.Fault{Process: d.Process, From: d.From, To: d.To + afterFault})
	}
	f.history.mu.Lock()
	defer f.history.mu.Unlock()
	tooBusy := f.history.tooBusy(record.Faults)
	record.Faults = append(record.Faults, tooBusy...)
	f.stats.Counts["times when the machine was too busy for a judgment"] += len(tooBusy)
	var failures []string
	current := make(map[string]*oracle.Hold) // by owner: a writer, or the reader that it has become
	for _, ev := range f.events {
		switch ev.What {
		case wants:
			f.stats.Counts["calls"]++
			record.Wanted[ev.Who] = ev.Parts
		case held:
			f.stats.Counts["acquired: "+kindNames[ev.Kind]]++
			h := ev.Hold
			h.Process = processOf(h.Who)
			if ev.MinHold > 0 {
				h.TakenUntil = f.history.notBefore(h.AcquiredAt) + ev.MinHold
			}
			current[h.Who] = h
			record.Holds = append(record.Holds, h)
		case ended:
			h := current[ev.Who]
			process, until := h.Process, h.TakenUntil
			*h = *ev.Hold
			h.Process, h.TakenUntil = process, until
		case refused:
			f.stats.Counts["writes of a former owner of a shard that etcd refused"]++
		case cannot:
			failures = append(failures, fmt.Sprintf("%s after all faults were healed: %s", ev.Who, ev.Err))
		case closed:
			if ev.Err != "" {
				failures = append(failures, fmt.Sprintf("%s: Close: %s", ev.Who, ev.Err))
			}
		}
	}
	f.setLeases(record)
	verdict := record.Judge()
	f.stats.Add(verdict.Stats)
	failures = append(failures, verdict.Violations...)
	for _, v := range failures {
		t.Errorf("round %d: %s", f.number, v)
	}
	if len(failures) > 0 && *trace {
		t.Log(f.text(record))
	}
}

// setCauses finds out why entries were deleted.
func (f *round) setCauses(changes []oracle.Change, log *raftlog.Log) {
	withKey := make(map[string]bool) // session keys that were deleted, by key and revision
	at := func(key string, rev int64) string { return fmt.Sprint(key, " ", rev) }
	for _, c := range changes {
		if key := string(c.Kv.Key); c.Deleted && !oracle.IsEntry(key) {
			withKey[at(key, c.Revision)] = true
		}
	}
	for i := range changes {
		c := &changes[i]
		key := string(c.Kv.Key)
		if !c.Deleted || !oracle.IsEntry(key) || c.Prev == nil {
			continue
		}
		id, _ := layout.LeaseOf(key)
		lease := clientv3.LeaseID(c.Prev.Lease)
		switch {
		case f.byHand[entryID(c.Prev)]:
			c.Cause = oracle.ByDeletion
		case lease != id: // of an administrator, or MinHold's
			c.Cause = oracle.ByLease
		case f.revoked[lease]:
			c.Cause = oracle.ByRevocation
		case !withKey[at(oracle.SessionKey(id), c.Revision)]:
			c.Cause = oracle.ByRequest
		case log.Deposed(lease):
			c.Cause = oracle.ByDeposed
		default:
			c.Cause = oracle.ByLease
		}
	}
}

// setLeases finds out which lease each process has. Those of processes that were killed hold nothing.
func (f *round) setLeases(record *oracle.Record) {
	for _, c := range record.Changes {
		key := string(c.Kv.Key)
		if c.Deleted || !oracle.IsEntry(key) {
			continue
		}
		id, _ := layout.LeaseOf(key)
		v, _ := layout.DecodeValue(c.Kv.Value)
		if _, known := record.Leases[id]; known || record.Wanted[v.Owner] == nil {
			continue
		}
		l := oracle.Lease{Process: processOf(v.Owner)}
		if slices.ContainsFunc(f.killed, func(id string) bool { return strings.HasPrefix(v.Owner, id+" ") }) {
			l.Ended = 1 // before any of its entries
		}
		record.Leases[id] = l
	}
}

// text returns all that is known of the round, in order.
func (f *round) text(record *oracle.Record) string {
	lines := make(map[time.Duration]string)
	for _, d := range f.faults {
		lines[d.From] += fmt.Sprintf("begin: %s %s\n", d.Process, d.what)
		lines[d.To] += fmt.Sprintf("end: %s %s\n", d.Process, d.what)
	}
	for _, h := range record.Holds {
		lines[h.Granted] += fmt.Sprintf("granted: %+v\n", *h)
		lines[max(h.Last, h.Told, h.Unlocked)] += fmt.Sprintf("ended: %s\n", h.Who)
	}
	for _, c := range record.Changes {
		verb := "put"
		if c.Deleted {
			verb = "delete (" + c.Cause.String() + ")"
		}
		lines[c.Before] += fmt.Sprintf("revision %d %s %s, lease %x, created %d: %s\n", c.Revision, verb, c.Kv.Key,
			c.Kv.Lease, max(c.Kv.CreateRevision, c.Prev.GetCreateRevision()), c.Kv.Value)
	}
	var all strings.Builder
	for _, at := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintf(&all, "%.4f %s", at.Seconds(), lines[at])
	}
	return all.String()
}
