package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
)

// changeJSON is a name after a change, as jsonHelp describes it.
type changeJSON struct {
	Kind     holdfast.Kind `json:"kind"`
	Name     string        `json:"name"`
	Revision int64         `json:"revision"`
	Held     bool          `json:"held"`
	Waiting  int           `json:"waiting"`
	Since    *time.Time    `json:"waits_since,omitempty"`
	Holder   *entryJSON    `json:"holder,omitempty"` // if not held, the first that waits
}

func asChangeJSON(q admin.Queue) changeJSON {
	_, held := q.Holder()
	c := changeJSON{
		Kind: q.Kind, Name: q.Name, Revision: q.Revision, Held: held, Waiting: q.Waiting(), Since: known(waitsSince(q)),
	}
	if len(q.Entries) > 0 {
		first := asJSON(q.Entries[0])
		c.Holder = &first
	}
	return c
}

// waitsSince returns when the one queued that waits for the longest time, by its clock; zero if that is not known.
func waitsSince(q admin.Queue) (since time.Time) {
	for _, e := range q.Entries[len(q.Holders()):] {
		if !e.QueuedAt.IsZero() && (since.IsZero() || e.QueuedAt.Before(since)) {
			since = e.QueuedAt
		}
	}
	return since
}

// watchList shows all names of some kinds until ctx ends. The first read is bounded; after it an outage is waited out.
func (a *app) watchList(
	ctx context.Context, w io.Writer, adm *admin.Client, prefix string, kinds []holdfast.Kind,
) error {
	first, cancel := a.bounded(ctx)
	defer cancel()
	for _, kind := range kinds {
		for _, err := range adm.List(first, kind, prefix) {
			if err != nil {
				return err
			}
			break // it can be read
		}
	}
	ctx, end := context.WithCancelCause(ctx)
	changes := make(chan admin.Queue)
	var all sync.WaitGroup
	defer all.Wait()
	defer end(nil)
	for _, kind := range kinds {
		all.Go(func() {
			for q, err := range adm.Watch(ctx, kind, prefix) {
				if err != nil {
					end(err)
					return
				}
				select {
				case changes <- q:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	if a.output == "table" && term.IsTerminal(int(os.Stdout.Fd())) {
		return listView(ctx, os.Stdout, changes)
	}
	for {
		select {
		case q := <-changes:
			var err error
			if a.output == "json" {
				err = printJSON(w, asChangeJSON(q))
			} else {
				_, err = fmt.Fprintln(w, changeLine(q, time.Now()))
			}
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// changeLine is a change in one line. Nothing is cut: it goes into a pipe or a file.
func changeLine(q admin.Queue, now time.Time) string {
	r := rowOf(q, now, 0)
	by := r.holder
	if _, held := q.Holder(); held {
		by = "by " + r.holder + " for " + r.since
	} else if len(q.Entries) == 0 {
		by = "free"
	}
	return fmt.Sprintf("%s  %-9s  %3d wait, longest %-7s  %s  %s", exact(now), q.Kind, r.waiting, r.longest, by, r.name)
}

// listRow is a name in a table.
type listRow struct {
	kind, holder, since, longest, name string
	waiting                            int
}

func rowOf(q admin.Queue, now time.Time, width int) listRow {
	r := listRow{
		kind: string(q.Kind), holder: "none yet: a lock delay runs", since: "-", waiting: q.Waiting(),
		longest: age(waitsSince(q), now), name: clean(q.Name, 0),
	}
	if h, held := q.Holder(); held {
		r.holder, r.since = owner(h, width), age(heldSince(h), now)
	}
	return r
}

// overview is what a live view shows of all names.
type overview struct {
	names  map[nameOf]*listed
	sorted []*listed // the longest wait first
	stale  bool      // sorted is not in order
}

type nameOf struct {
	kind holdfast.Kind
	name string
}

type listed struct {
	admin.Queue
	since   time.Time // of the longest wait
	waiting int
}

func (t *overview) apply(q admin.Queue) {
	if t.names == nil {
		t.names = make(map[nameOf]*listed)
	}
	at := nameOf{q.Kind, q.Name}
	t.stale = true
	if len(q.Entries) == 0 {
		delete(t.names, at)
		return
	}
	t.names[at] = &listed{q, waitsSince(q), q.Waiting()}
}

// order returns all names, the one with the longest wait first. Those without waiters follow by kind and name.
func (t *overview) order() []*listed {
	if !t.stale {
		return t.sorted
	}
	t.stale = false
	t.sorted = slices.AppendSeq(t.sorted[:0], maps.Values(t.names))
	slices.SortFunc(t.sorted, func(a, b *listed) int {
		switch {
		case a.since.IsZero() != b.since.IsZero():
			return cmp.Compare(b.since.Unix(), a.since.Unix()) // the zero time is the smallest
		case !a.since.Equal(b.since):
			return a.since.Compare(b.since)
		}
		return cmp.Or(cmp.Compare(b.waiting, a.waiting), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return t.sorted
}

// lines returns the table in some rows and columns.
func (t *overview) lines(rows, columns int, now time.Time) []string {
	const row = "%-9s %7s  %7v  %7s  %-*s  %s"
	width := wider(columns, 22)
	all, waiting := t.order(), 0
	for _, q := range all {
		waiting += q.waiting
	}
	lines := []string{
		fmt.Sprintf("%s   %d names, %d wait   Ctrl-C ends this view, nothing else", exact(now), len(all), waiting),
		fmt.Sprintf(row, "KIND", "LONGEST", "WAITING", "FOR", width, "HOLDER", "NAME"),
	}
	shown := all[:min(len(all), max(1, rows-3))]
	for _, q := range shown {
		r := rowOf(q.Queue, now, width)
		lines = append(lines, fmt.Sprintf(row, r.kind, r.longest, r.waiting, r.since, width, clean(r.holder, width), r.name))
	}
	if more := len(all) - len(shown); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more: name a PREFIX or a --kind, or see \"holdfast ls\"", more))
	}
	return lines
}

// redrawn is the shortest time between two pictures: a busy namespace changes more often than an eye sees.
const redrawn = 200 * time.Millisecond

// listView redraws the terminal after changes, and each second so that times go on.
func listView(ctx context.Context, out *os.File, changes <-chan admin.Queue) error {
	var t overview
	tick := time.NewTicker(redrawn)
	defer tick.Stop()
	changed, last := true, time.Time{}
	for {
		select {
		case q := <-changes:
			t.apply(q)
			changed = true
		case now := <-tick.C:
			if !changed && now.Sub(last) < time.Second {
				continue
			}
			if err := drawTable(out, &t, now); err != nil {
				return err
			}
			changed, last = false, now
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func drawTable(out *os.File, t *overview, now time.Time) error {
	width, height, err := term.GetSize(int(out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	return drawLines(out, t.lines(height, width, now), width, height)
}

// drawLines overwrites the screen line by line, which does not flicker as clearing it first would.
func drawLines(out io.Writer, lines []string, width, height int) error {
	var text strings.Builder
	text.WriteString("\x1b[H")
	for i, line := range lines[:min(len(lines), height)] {
		if i > 0 {
			text.WriteString("\r\n")
		}
		text.WriteString(cut(line, width))
		text.WriteString("\x1b[K")
	}
	text.WriteString("\x1b[J")
	_, err := io.WriteString(out, text.String())
	return err
}
