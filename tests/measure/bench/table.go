package main

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// table formats the results in Markdown. A row has the results of one subject, of each cluster size.
func table(results []result) string {
	var b strings.Builder
	b.WriteString("| one operation | members | holdfast | upstream | floor " +
		"| upstream / holdfast | holdfast / floor |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for len(results) > 0 {
		n := 1
		for n < len(results) && results[n].name == results[0].name {
			n++
		}
		sizes := results[:n]
		fmt.Fprintf(&b, "| %s<br>`%s` | %s | %s | %s | %s | %s | %s |\n",
			escapeCell(sizes[0].what), escapeCell(sizes[0].name), each(sizes, result.members),
			each(sizes, func(r result) string { return r.cell("holdfast") }),
			each(sizes, func(r result) string { return r.cell("upstream") }),
			each(sizes, func(r result) string { return r.cell("floor") }),
			each(sizes, func(r result) string { return formatRatios(ratio(r.sides["upstream"], r.sides["holdfast"])) }),
			each(sizes, func(r result) string { return formatRatios(ratio(r.sides["holdfast"], r.sides["floor"])) }))
		results = results[n:]
	}
	return b.String()
}

// each formats what several results have, and what all of them have only once.
func each(results []result, format func(result) string) string {
	var texts []string
	for _, r := range results {
		texts = append(texts, format(r))
	}
	return strings.Join(slices.Compact(texts), "; ")
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
