package main

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/view"
)

// runJSON is the last run of a job as jsonHelp describes it.
type runJSON struct {
	Slot    string         `json:"slot,omitempty"`
	At      time.Time      `json:"at"`
	Due     *time.Time     `json:"due,omitempty"`
	Overdue bool           `json:"overdue"`
	Token   holdfast.Token `json:"token"`
	Owner   string         `json:"owner,omitempty"`
	Host    string         `json:"host,omitempty"`
	PID     int            `json:"pid,omitempty"`
}

func runAsJSON(r view.Run, now time.Time) *runJSON {
	if !r.Known() {
		return nil
	}
	return &runJSON{r.Slot, r.At, known(r.Due), r.Overdue(now), r.Token, r.Owner, r.Host, r.PID}
}

// describeRun is the last run of a job, if one is recorded, in lines of at most 80 columns.
func describeRun(r view.Run, now time.Time) []string {
	if !r.Known() {
		return nil
	}
	first := "  last run  " + since(r.At, now)
	if r.Slot != "" {
		first += ", slot " + clean(r.Slot, 28)
	}
	who := owner(admin.Entry{Owner: r.Owner, Host: r.Host, PID: r.PID}, 35)
	lines := []string{first, fmt.Sprintf("            by %s, token %v", who, r.Token)}
	switch {
	case r.Due.IsZero():
	case r.Overdue(now):
		lines = append(lines, "  next run  overdue since "+since(r.Due, now))
	default:
		lines = append(lines, "  next run  due by "+exact(r.Due))
	}
	return lines
}

// overdue returns why the job of a name must be looked at, or nil.
func overdue(q admin.Queue, now time.Time) error {
	name := fmt.Sprintf("%s %s", q.Kind, clean(q.Name, 0))
	switch r := q.LastRun; {
	case !r.Known():
		return fmt.Errorf("%s: no run was ever recorded; \"holdfast run --expect\" records those that succeed", name)
	case r.Due.IsZero():
		return fmt.Errorf("%s: it is not known when it is to run again: its last run, %s, was recorded without that",
			name, since(r.At, now))
	case r.Overdue(now):
		return fmt.Errorf("%s: overdue since %s; its last run was %s, by %s", name, since(r.Due, now), since(r.At, now),
			owner(admin.Entry{Owner: r.Owner, Host: r.Host, PID: r.PID}, 0))
	default:
		return nil
	}
}
