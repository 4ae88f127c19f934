package main

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// table formats the results in Markdown. Only the first row of a subject has its description.
func table(results []result) string {
	var b strings.Builder
	b.WriteString("| members | one operation | holdfast | upstream | floor " +
		"| upstream / holdfast | holdfast / floor |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for i, r := range results {
		what := "`" + escapeCell(r.name) + "`"
		if i == 0 || results[i-1].name != r.name {
			what = escapeCell(r.what) + "<br>" + what
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", r.members(), what,
			r.cell("holdfast"), r.cell("upstream"), r.cell("floor"),
			formatRatios(ratio(r.sides["upstream"], r.sides["holdfast"])),
			formatRatios(ratio(r.sides["holdfast"], r.sides["floor"])))
	}
	return b.String()
}

// members formats the cluster size.
func (r result) members() string {
	if r.clientOnly {
		return "none"
	}
	return fmt.Sprint(r.size)
}

// cell formats the median time of one side, and its allocations if only the client was measured. The ratios have the
// intervals: times differ from machine to machine.
func (r result) cell(side string) string {
	s := r.sides[side]
	text, _, _ := strings.Cut(formatDurations(spreadOf(s.took)), " (")
	if r.clientOnly && len(s.allocs) > 0 {
		text += fmt.Sprintf(", %.0f allocations", slices.Min(s.allocs))
	}
	return text
}

// escapeCell escapes a text for use in a table.
func escapeCell(text string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "`", "'").Replace(html.EscapeString(text))
}
