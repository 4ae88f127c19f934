//go:build linux

package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/tests/internal/raftlog"
	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
	"github.com/holdfast-go/holdfast/tests/models/queuemodel"
	"github.com/holdfast-go/holdfast/tests/models/semmodel"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

const (
	// afterFault is how long a fault has effects after its end: connections are made again, a leader is elected.
	afterFault = 3 * time.Second

	// late is how much later than it was made a change may have been seen.
	late = 2 * time.Second
)

// A recorded round is all that is needed to judge it again.
type recorded struct {
	Seed     uint64
	Round    int
	Etcd     string // the version of the members
	Record   *oracle.Record
	Faults   []fault
	Failures []string // beside what the oracle finds
	Raft     []string // who led, and who revoked which lease, by etcd's own log

	Overruns  []overrun                // calls of OnOverrun
	Returned  map[string]time.Duration // when a function under a hold was about to return
	Overstays []overrun                // functions that went on after the loss of their holds
	Used      []registerOp             // in no order
	Steps     []lease.Step             // of entries, in order for each process
	Renewals  []said                   // in order for each lease
	Stalls    []oracle.Fault           // when a process did not run, by its own heartbeat
	gaps      []oracle.Fault           // of these: those that are faults now

	violations []string // what judge has found
	ofMachine  []string // and that of it which comes of a process that did not run
}

// judge returns the verdict of the oracle, with what is wrong beside that among its violations. It judges twice: as if
// each process had run all the time but for the faults that were made, and with the gaps in the processes' own
// heartbeats as faults. What is wrong at first and not then is of the machine: it is told apart, and not left out.
func (rec *recorded) judge() oracle.Verdict {
	verdict := rec.judgeWith(nil)
	rec.violations, rec.ofMachine = verdict.Violations, nil
	if len(rec.violations) > len(rec.Failures) && len(rec.Stalls) > 0 {
		rec.violations, rec.ofMachine = apart(verdict.Violations, rec.judgeWith(rec.Stalls).Violations)
		for _, v := range rec.ofMachine {
			if strings.HasPrefix(v, refusedLease) {
				verdict.Counts[refusedLeases]--
			}
		}
	}
	return verdict
}

// apart divides violations into those that stay and the others.
func apart(all, stay []string) (stayed, others []string) {
	known := make(map[string]bool)
	for _, v := range stay {
		known[essence(v)] = true
	}
	for _, v := range all {
		if known[essence(v)] {
			stayed = append(stayed, v)
		} else {
			others = append(others, v)
		}
	}
	return stayed, others
}

// durations are what a violation says of times, which may be others if a process did not run.
var durations = regexp.MustCompile(`(\d+(\.\d+)?(h|ms|m|s|µs|ns))+`)

// refusedLease is what a violation of the model of the lease begins with.
const refusedLease = "the model refuses a step of lease "

// essence returns what a violation is about, without how long or at which step.
func essence(violation string) string {
	about, _, _ := strings.Cut(violation, "\n")
	if rest, ok := strings.CutPrefix(about, refusedLease); ok {
		lease, _, _ := strings.Cut(rest, ",")
		return "lease " + lease
	}
	return durations.ReplaceAllString(about, "")
}

// judgeWith judges with these gaps of processes as faults. Those that are short excuse no rule of the oracle, or a busy
// machine would excuse all.
func (rec *recorded) judgeWith(gaps []oracle.Fault) oracle.Verdict {
	rec.gaps = gaps
	record := *rec.Record
	record.Faults = slices.Clone(record.Faults)
	for _, f := range gaps {
		if f.To-f.From >= longGap {
			f.To += afterStall
			record.Faults = append(record.Faults, f)
		}
	}
	verdict := record.Judge()
	history := modeltrace.NewHistory(rec.Record, rec.Steps)
	entries, permits, leases := queuemodel.Follow(history), semmodel.Follow(history), rec.followLeases()
	verdict.Violations = slices.Concat(rec.Failures, verdict.Violations, rec.judgeOverruns(),
		rec.judgeRegisters(), entries.Refused, permits.Refused, leases.Refused)
	verdict.Counts[refusedSteps] = len(entries.Refused)
	verdict.Counts[modeltrace.Permits+refusedSteps] = len(permits.Refused)
	verdict.Counts[refusedLeases] = len(leases.Refused)
	for _, counts := range []map[string]int{entries.Counts, permits.Counts, leases.Counts} {
		maps.Copy(verdict.Counts, counts)
	}
	return verdict
}

// record puts together what the processes have reported and the changes of the store, and judges it.
func (f *round) record(changes []oracle.Change, log *raftlog.Log) *recorded {
	f.history.mu.Lock()
	defer f.history.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.setCauses(changes, log)
	record := &oracle.Record{Changes: changes, Late: late, Fast: true,
		Wanted: make(map[string][]oracle.Part), Leases: make(map[clientv3.LeaseID]oracle.Lease)}
	for _, d := range f.faults { // first, so that what follows is the machine's
		f.stats.Counts[faultPrefix+d.What]++
		record.Faults = append(record.Faults, oracle.Fault{Process: d.Process, From: d.From, To: d.To + afterFault})
	}
	tooBusy := f.history.tooBusy(record.Faults)
	record.Faults = append(record.Faults, tooBusy...)
	f.stats.Counts["times when the machine was too busy for a judgment"] += len(tooBusy)
	rec := &recorded{Seed: f.seed, Round: f.number, Record: record, Faults: f.faults, Raft: log.Lines(),
		Returned: make(map[string]time.Duration)}
	current := make(map[string]*oracle.Hold) // by owner: a writer, or the reader that it has become
	for _, ev := range f.events {
		f.countCall(ev)
		switch ev.What {
		case wants:
			record.Wanted[ev.Who] = ev.Parts
		case held:
			f.stats.Counts[acquiredPrefix+kindNames[ev.Kind]]++
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
			if h.Unlocked != 0 {
				f.stats.Counts[released]++
			}
		case overran:
			f.stats.Counts[overruns]++
			rec.Overruns = append(rec.Overruns, ev.Overrun)
		case returned:
			rec.Returned[ev.Overrun.Of] = ev.Overrun.At
			if ev.Overrun.For > 0 {
				rec.Overstays = append(rec.Overstays, ev.Overrun)
			}
			if ev.Overrun.mustBeTold() {
				f.stats.Counts[outlived]++
			}
		case used:
			f.stats.Counts[operations]++
			rec.Used = append(rec.Used, ev.Used)
		case stepped:
			rec.Steps = append(rec.Steps, ev.Step)
		case renewed:
			rec.Renewals = append(rec.Renewals, ev.Renewal)
		case stalled:
			rec.Stalls = append(rec.Stalls, ev.Stall)
		case refused:
			f.stats.Counts["writes of a former owner of a shard that etcd refused"]++
		case cannot:
			if f.tooBusySince(tooBusy) {
				f.stats.Counts[notJudged]++
				continue
			}
			f.failures = append(f.failures, fmt.Sprintf("%s after all faults were healed: %s", ev.Who, ev.Err))
		case closed:
			if ev.Err != "" {
				f.failures = append(f.failures, fmt.Sprintf("%s: Close: %s", ev.Who, ev.Err))
			}
		}
	}
	f.setLeases(record)
	f.countUpstream()
	rec.Failures = f.failures
	f.stats.Add(rec.judge().Stats)
	return rec
}

// What the statistics of a round have beside those of the oracle.
const (
	calls          = "calls"
	released       = "confirmed releases"
	overruns       = "calls of OnOverrun"
	outlived       = "functions for which OnOverrun had to be called"
	operations     = "operations on registers"
	refusedSteps   = "entries with a step that the model refuses"
	faultPrefix    = "fault: "
	acquiredPrefix = "acquired: "
)

// setCauses finds out why entries were deleted.
func (f *round) setCauses(changes []oracle.Change, log *raftlog.Log) {
	withKey := make(map[string]bool) // session keys that were deleted, by key and revision
	at := func(key string, rev int64) string { return fmt.Sprint(key, " ", rev) }
	for _, c := range changes {
		if key := string(c.Kv.Key); c.Deleted && !oracle.IsEntry(key) {
			withKey[at(key, c.Revision)] = true
		}
	}
	attachedTo := make(map[string]clientv3.LeaseID) // by entry: whose it is now, if not that of its key
	for i := range changes {
		c := &changes[i]
		key := string(c.Kv.Key)
		if !oracle.IsEntry(key) || c.Prev == nil {
			continue
		}
		if !c.Deleted {
			if wasAttached(c) {
				attachedTo[entryID(c.Kv)] = clientv3.LeaseID(c.Kv.Lease)
			}
			continue
		}
		id, _ := layout.LeaseOf(key)
		if other, ok := attachedTo[entryID(c.Prev)]; ok {
			id = other
		}
		lease := clientv3.LeaseID(c.Prev.Lease)
		switch {
		case f.byHand[entryID(c.Prev)]:
			c.Cause = oracle.ByDeletion
		case lease != id && f.revoked[lease]: // its session has nothing to do with it
			c.Cause = oracle.ByDeletion
		case lease != id: // of an administrator, of a ticket, or MinHold's
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

// wasAttached reports whether a put has ended the time of an entry on a ticket's lease.
func wasAttached(c *oracle.Change) bool {
	before, _ := layout.DecodeValue(c.Prev.Value)
	now, _ := layout.DecodeValue(c.Kv.Value)
	return !before.Detached.IsZero() && now.Detached.IsZero()
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
