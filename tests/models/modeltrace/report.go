package modeltrace

import (
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// Entries of a record are followed one at a time. A client acts on nothing but what etcd has told it. So what becomes
// of an entry depends on the entries ahead of it and on session keys, of a permit on the limit, too, and not on what
// other clients know. The model has one attempt, that of the entry. Everything else that changes in the store happens
// to it, as etcd's history has it.
//
// So the order of the steps of several processes is not needed. The steps of one entry are in order. Each read has the
// revision of the store at which etcd carried it out, and what follows from it comes right after that.

// A Report says of how many entries each step was one of a model's.
type Report struct {
	Counts  map[string]int // of entries, by the constants below
	Refused []string       // for each entry with a step that the model does not have: its steps up to that
}

// What Counts has.
const (
	Followed = "entries whose steps the model has, to their ends"
	Held     = "of these, those that were held"
	Waited   = "of these, those that had others ahead"
	Delayed  = "of these, those for which a lock delay began"
	Detached = "entries that were detached, which no model has"
	Stopped  = "entries that the model does not follow to their ends: " // and why
)

// Permits is before each of these, where they are permits.
const Permits = "permits: "

// Why an entry is not followed to its end.
const (
	TooMany       = "more entries are ahead of it, or of more sessions, than the model has"
	TooManyStates = "more states agree with it than are looked at"
	NoSessionKey  = "a session key had been put before the record began"
)

// Report follows each entry of which a process has told, but only permits, or only what is none. follow returns what is
// wrong with one, or why it is not followed to its end.
func (h *History) Report(permits bool, follow func(*Entry) (wrong, stopped string)) Report {
	report, of := Report{Counts: make(map[string]int)}, ""
	if permits {
		of = Permits
	}
	for _, e := range h.Entries {
		if len(h.Gates(e)) == 0 || e.Permit != permits {
			continue
		}
		if e.Detached {
			report.Counts[of+Detached]++
			continue
		}
		wrong, stopped := follow(e)
		switch {
		case wrong != "":
			report.Refused = append(report.Refused, fmt.Sprintf("the model refuses a step of %v, %s", e, wrong))
			continue
		case stopped != "":
			report.Counts[of+Stopped+stopped]++
			continue
		}
		for what, is := range map[string]bool{
			Followed: true, Held: e.Held, Waited: len(e.Ahead) > 0,
			Delayed: slices.ContainsFunc(h.Steps(e), func(s lease.Step) bool { return s.Delays }),
		} {
			if is {
				report.Counts[of+what]++
			}
		}
	}
	return report
}

// Before returns how many of an entry's steps come before a revision, as far as that is known. A permit that has waited
// holds by its mark.
func (e *Entry) Before(at int64, said []lease.Step) (n int) {
	for n < len(said) {
		switch s := said[n]; {
		case s.Action == lease.Judged && s.Read >= at, s.Action == lease.Holds && max(s.Read, e.MarkedAt) >= at:
			return n
		}
		n++
	}
	return n
}
