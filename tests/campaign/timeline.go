//go:build linux

package main

import (
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"time"
)

// text returns all that is known of the round, in order.
func (rec *recorded) text() string {
	lines := make(map[time.Duration]string)
	for _, d := range rec.Faults {
		lines[d.From] += fmt.Sprintf("begin: %s %s\n", d.Process, d.What)
		lines[d.To] += fmt.Sprintf("end: %s %s\n", d.Process, d.What)
	}
	for _, h := range rec.Record.Holds {
		lines[h.Granted] += fmt.Sprintf("granted: %+v\n", *h)
		lines[max(h.Last, h.Told, h.Unlocked)] += fmt.Sprintf("ended: %s\n", h.Who)
	}
	for _, c := range rec.Record.Changes {
		verb := "put"
		if c.Deleted {
			verb = "delete (" + c.Cause.String() + ")"
		}
		lines[c.Before] += fmt.Sprintf("revision %d %s %s, lease %x, created %d: %s\n", c.Revision, verb, c.Kv.Key,
			c.Kv.Lease, max(c.Kv.CreateRevision, c.Prev.GetCreateRevision()), c.Kv.Value)
	}
	var all strings.Builder
	for _, v := range rec.violations {
		fmt.Fprintf(&all, "VIOLATION: %s\n", v)
	}
	for _, v := range rec.ofMachine {
		fmt.Fprintf(&all, "VIOLATION of the machine: %s\n", v)
	}
	for _, line := range rec.Raft {
		fmt.Fprintf(&all, "Raft: %s\n", line)
	}
	for _, at := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintf(&all, "%.4f %s", at.Seconds(), lines[at])
	}
	return all.String()
}

// page returns the round as a page: a row for each process and for each queue, with faults and holds as bars.
func (rec *recorded) page() string {
	begin, end := time.Duration(-1), time.Duration(0)
	rows := make(map[string]*row)
	add := func(name, class, title string, from, to time.Duration) {
		if from <= 0 || to < from {
			return
		}
		if begin < 0 || from < begin {
			begin = from
		}
		end = max(end, to)
		if rows[name] == nil {
			rows[name] = &row{Name: name}
		}
		title = fmt.Sprintf("%s\n%.3f to %.3f s", title, from.Seconds(), to.Seconds())
		rows[name].Bars = append(rows[name].Bars, &bar{Class: class, Title: title, from: from, to: to})
	}
	for _, d := range rec.Faults {
		name := "faults of " + d.Process
		if d.Process == "" {
			name = "faults of the cluster"
		}
		add(name, "fault", d.What, d.From, d.To)
	}
	for _, h := range rec.Record.Holds {
		class := "hold"
		if slices.ContainsFunc(rec.violations, func(v string) bool { return strings.Contains(v, h.Who) }) {
			class = "bad"
		}
		title := fmt.Sprintf("%s\ntoken %d, lease %x, told of a loss at %.3f", h.Who, h.Token, int64(h.Lease),
			h.Told.Seconds())
		for _, p := range h.Parts {
			add(p.Prefix, class, title, h.First, h.Last)
		}
	}
	for _, c := range rec.Record.Changes {
		if c.Deleted {
			if key := string(c.Kv.Key); strings.Contains(key, "/@/") {
				add(key[:strings.LastIndexByte(key, '/')+1], "gone", fmt.Sprintf("revision %d: %s deleted: %v", c.Revision,
					key, c.Cause), c.After, c.Before)
			}
		}
	}
	data := struct {
		*recorded
		Violations []string
		Rows       []*row
		Seconds    float64
	}{recorded: rec, Violations: rec.violations, Seconds: (end - begin).Seconds()}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		for _, b := range rows[name].Bars {
			b.Left = 100 * float64(b.from-begin) / float64(max(end-begin, 1))
			b.Width = 100 * float64(b.to-b.from) / float64(max(end-begin, 1))
		}
		data.Rows = append(data.Rows, rows[name])
	}
	var all strings.Builder
	if err := pageTemplate.Execute(&all, data); err != nil {
		panic(err) // the data are our own
	}
	return all.String()
}

type row struct {
	Name string
	Bars []*bar
}

type bar struct {
	Class, Title string
	Left, Width  float64 // in percent
	from, to     time.Duration
}

var pageTemplate = template.Must(template.New("page").Parse(`<!doctype html>
<meta charset="utf-8">
<title>seed {{.Seed}}, round {{.Round}}, etcd {{.Etcd}}</title>
<style>
body { font: 14px sans-serif; margin: 1em }
.row { display: flex; border-bottom: 1px solid #ddd }
.name { width: 18em; overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
.bars { position: relative; flex: 1; height: 1.4em }
.bars i { position: absolute; top: 10%; height: 80%; min-width: 1px; opacity: .7 }
.fault { background: #e0a030 } .hold { background: #4080c0 } .bad { background: #d02020 } .gone { background: #000 }
</style>
<h1>Seed {{.Seed}}, round {{.Round}}, etcd {{.Etcd}}: {{printf "%.1f" .Seconds}} s</h1>
<p>Blue: a hold, from its first to its last true Check. Red: one that a violation names. Black: an entry was deleted.
Yellow: a fault. Point at a bar to read more; timeline.txt has all.
<ul>{{range .Violations}}<li>{{.}}{{end}}</ul>
{{range .Rows}}<div class="row"><div class="name" title="{{.Name}}">{{.Name}}</div><div class="bars">
{{- range .Bars}}<i class="{{.Class}}" title="{{.Title}}" style="left: {{.Left}}%; width: {{.Width}}%"></i>{{end -}}
</div></div>
{{end}}`))
