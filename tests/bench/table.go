package main

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// table is the results in Markdown. A row that only has another size of cluster
// than the row above does not repeat what is measured.
func table(results []result) string {
	var b strings.Builder
	b.WriteString("| members | one operation | holdfast | upstream | floor | upstream / holdfast | holdfast / floor |\n" +
		"| --- | --- | --- | --- | --- | --- | --- |\n")
	for i, r := range results {
		what := "`" + cell(r.name) + "`"
		if i == 0 || results[i-1].name != r.name {
			what = cell(r.what) + "<br>" + what
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", r.members(), what,
			r.cell("holdfast"), r.cell("upstream"), r.cell("floor"),
			times(ratio(r.sides["upstream"], r.sides["holdfast"])), times(ratio(r.sides["holdfast"], r.sides["floor"])))
	}
	return b.String()
}

// members is the size of the cluster, for people.
func (r result) members() string {
	if r.alone {
		return "none"
	}
	return fmt.Sprint(r.size)
}

// cell is what one side took, and its allocations where they are its own.
func (r result) cell(side string) string {
	s := r.sides[side]
	text := durations(spreadOf(s.took))
	if r.alone && len(s.allocs) > 0 {
		text += fmt.Sprintf(", %.0f allocations", slices.Min(s.allocs))
	}
	return text
}

// cell takes from a text what would end a cell of a table or begin markup.
func cell(text string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "`", "'").Replace(html.EscapeString(text))
}
