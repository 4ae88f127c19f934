package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
)

// Run is the last run of a recurring job, as its holder has recorded it in etcd: by package lastrun or with
// "holdfast run --expect". It outlives the holder. The zero Run says that none is recorded.
type Run struct {
	Slot  string         // which run it was, in the job's own words, such as "2026-03-29"; may be empty
	At    time.Time      // when it was recorded: UTC, in milliseconds, by the clock of its process
	Due   time.Time      // by when the next one is expected; zero: nothing was said of that
	Token holdfast.Token `json:",omitzero"` // of the lock or term under which it ran
	Owner string         // session.Options.Owner
	Host  string         // machine name
	PID   int
}

// Known reports whether a run is recorded.
func (r Run) Known() bool { return !r.At.IsZero() }

// Overdue reports whether the next run should have been recorded by now.
func (r Run) Overdue(now time.Time) bool { return !r.Due.IsZero() && now.After(r.Due) }

// String says when the job ran, where, and by when it is expected again, on one line.
func (r Run) String() string {
	if !r.Known() {
		return "no run is recorded"
	}
	text := []string{"last run recorded at " + r.At.Format(time.RFC3339)}
	if r.Slot != "" {
		text = append(text, "slot "+names.Quote(r.Slot))
	}
	if r.Owner != "" {
		text = append(text, "owner "+names.Quote(r.Owner))
	}
	if r.Host != "" {
		text = append(text, fmt.Sprintf("host %s, pid %d", names.Quote(r.Host), r.PID))
	}
	if r.Token != 0 {
		text = append(text, "token "+r.Token.String())
	}
	if !r.Due.IsZero() {
		text = append(text, "the next one is due by "+r.Due.Format(time.RFC3339))
	}
	return strings.Join(text, ", ")
}
