package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// toldWithin is the time within which a holder must report that its entry was removed by force, while its connection
	// works: 6 s and the duration of one request; of a revoked lease much less, since its watches tell.
	toldWithin           = 7050 * time.Millisecond
	revocationToldWithin = 3050 * time.Millisecond

	// grantedWithin is the time within which entries at the front must have a holder, while its connection works: a few
	// requests, each of which may be repeated. In a Lossy record it is twice as long.
	grantedWithin = 8 * time.Second

	// foundWithin is RecheckAfter of internal/watching: a waiter looks that often whether its entries stand.
	foundWithin = 30 * time.Second

	// lockDelay is that of the sessions: the default.
	lockDelay = 2 * time.Second

	// promptly is the time within which a waiter must hold after a release while nothing fails: well before one who waits
	// for the lock delay.
	promptly = lockDelay / 2
)

// GrantedWithin is the time within which entries at the front must have a holder, while its connection works.
const GrantedWithin = grantedWithin

// A Verdict is what Judge has found.
type Verdict struct {
	Violations []string
	Stats
}

// Judge judges a record. It changes nothing that the caller has set.
func (r *Record) Judge() Verdict {
	j := &judge{Record: r, history: newHistory(r.Changes), faults: make(map[faultsKey][]Fault),
		verdict: Verdict{Stats: NewStats()}}
	for _, h := range r.Holds {
		if j.checkGrant(h) {
			j.holds = append(j.holds, h)
		}
	}
	j.checkPuts()
	for i, h := range j.holds {
		j.checkTold(h)
		j.checkRelease(h)
		j.checkPrompt(h)
		for _, other := range j.holds[:i] {
			if other.excludes(h) && !h.continues(other) {
				j.checkPair(other, h)
			}
		}
		if isPermit(h.Key) {
			j.checkAdmission(h)
			j.checkTogether(h)
		}
	}
	j.countNewcomers()
	j.checkFronts()
	j.checkWrites()
	return j.verdict
}

type judge struct {
	*Record
	*history
	holds   []*Hold // those whose entries are known
	verdict Verdict
	faults  map[faultsKey][]Fault // what faultsOf has found
}

func (j *judge) fail(format string, args ...any) {
	j.verdict.Violations = append(j.verdict.Violations, fmt.Sprintf(format, args...))
}

// Stats are what a number of records has had.
type Stats struct {
	Counts map[string]int
	Worst  map[string]time.Duration // the longest, or the shortest: its text says which
}

// NewStats returns empty Stats.
func NewStats() Stats { return Stats{make(map[string]int), make(map[string]time.Duration)} }

// What a record has had.
const (
	Granted         = "acquisitions"
	Together        = "readers, or permits, that were granted beside others"
	Waited          = "permits that were granted after a wait"
	InSeveralQueues = "acquisitions in several queues"
	Downgraded      = "writers that became readers"
	Taken           = "names that stayed taken by MinHold"
	ByForce         = "holds whose entry was removed by force"
	ByRemoval       = "holds that an administrator has removed"

	FencedWrites    = "fenced writes"
	PlainWrites     = "writes without a fence"
	LatePlainWrites = "writes without a fence when the writer held no more"

	LostPrefix      = "lost: "                                                  // and the cause
	ByForcePrefix   = "holds that ended by force: "                             // and the cause
	NewcomersPrefix = "of these, those after which another queued at once: "    // and the cause
	TwoHeldPrefix   = "of these, those whose holder held beside the newcomer: " // and the cause

	NewcomersOfPrefix = "newcomers, by kind: "                                    // and the newcomer's kind
	TwoHeldOfPrefix   = "newcomers that held beside the former holder, by kind: " // and the newcomer's kind

	OverlapPrefix = "two held, as documented: "                   // and why, and the cause
	MarginPrefix  = "a lost hold was told before the next held: " // and the cause
)

func (s Stats) count(what string) { s.Counts[what]++ }

// most keeps the longest duration.
func (s Stats) most(what string, d time.Duration) {
	s.Worst[what+", at most"] = max(s.Worst[what+", at most"], d)
}

// least keeps the shortest duration.
func (s Stats) least(what string, d time.Duration) {
	what += ", at least"
	if was, known := s.Worst[what]; !known || d < was {
		s.Worst[what] = d
	}
}

// Add adds those of another record.
func (s Stats) Add(other Stats) {
	for what, n := range other.Counts {
		s.Counts[what] += n
	}
	for what, d := range other.Worst {
		switch was, known := s.Worst[what]; {
		case !known, strings.HasSuffix(what, "least") && d < was, strings.HasSuffix(what, "most") && d > was:
			s.Worst[what] = d
		}
	}
}

// String returns a line for each.
func (s Stats) String() string {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(s.Counts)) {
		fmt.Fprintf(&b, "%8d %s\n", s.Counts[what], what)
	}
	for _, what := range slices.Sorted(maps.Keys(s.Worst)) {
		fmt.Fprintf(&b, "%8v %s\n", s.Worst[what].Round(time.Millisecond), what)
	}
	return b.String()
}

// excludes reports whether two may not be held at the same time.
func (h *Hold) excludes(other *Hold) bool {
	return slices.ContainsFunc(h.Parts, func(p Part) bool { return slices.ContainsFunc(other.Parts, p.excludes) })
}

// continues reports whether h is the reader that a former writer has become.
func (h *Hold) continues(former *Hold) bool { return former.Who == h.Who && former.rev == h.rev }

// shared reports whether h excludes no reader.
func (h *Hold) shared() bool {
	return !slices.ContainsFunc(h.Parts, func(p Part) bool { return !p.Shared })
}

// sharesQueue reports whether two have a queue in common.
func (h *Hold) sharesQueue(other *Hold) bool {
	return slices.ContainsFunc(h.Parts, func(p Part) bool {
		return slices.ContainsFunc(other.Parts, func(q Part) bool { return p.Prefix == q.Prefix })
	})
}

// lost returns the first entry of a hold that was deleted, or nil.
func (h *Hold) lost() (first *entry) {
	for _, e := range h.entries {
		if e.gone != nil && (first == nil || e.gone.Revision < first.gone.Revision) {
			first = e
		}
	}
	return first
}
