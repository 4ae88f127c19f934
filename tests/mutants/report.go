//go:build linux

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"
)

var outcomes = []string{failed, panicked, timedOut, survived, noDiff, notCovered}

// table writes the verdicts, counted by what by returns.
func table(w io.Writer, title string, verdicts []verdict, by func(verdict) string) {
	counts := make(map[string]map[string]int)
	count := func(row string, v verdict) {
		if counts[row] == nil {
			counts[row] = make(map[string]int)
		}
		counts[row][v.Outcome]++
		counts[row]["mutants"]++
	}
	for _, v := range verdicts {
		count(by(v), v)
		count("all", v)
	}
	out := tabwriter.NewWriter(w, 0, 0, 1, ' ', tabwriter.AlignRight|tabwriter.Debug)
	fmt.Fprintf(out, "\n%s\tmutants\tfailed\tpanicked\ttimed out\tsurvived\tno difference\tnot covered\t\n", title)
	rows := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(boolToInt(a == "all")-boolToInt(b == "all"), cmp.Compare(a, b))
	})
	for _, row := range rows {
		fmt.Fprintf(out, "%s\t%d\t", row, counts[row]["mutants"])
		for _, o := range outcomes {
			fmt.Fprintf(out, "%d\t", counts[row][o])
		}
		fmt.Fprintln(out)
	}
	out.Flush()
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// report writes what was found and returns how many verdicts contradict the list of explained survivors. all are the
// mutants that exist, also those that were not judged.
func report(w io.Writer, verdicts []verdict, all []*mutant, explained map[string]string, took time.Duration) int {
	exists := make(map[string]bool)
	for _, m := range all {
		exists[m.key()] = true
	}
	wrong := 0
	complain := func(format string, args ...any) {
		wrong++
		fmt.Fprintf(w, format+"\n", args...)
	}
	for _, v := range verdicts {
		_, known := explained[v.Key]
		switch {
		case v.killed() && known:
			complain("explained as a survivor, but %s kills it (%s); take it out of the list:\n- %s", v.Test, v.Outcome, v.Key)
		case !v.killed() && !known:
			left := ""
			if v.Left > 0 {
				left = fmt.Sprintf(", %d more were not run", v.Left)
			}
			complain("%s, not explained (%d tests%s): %s:%d\n- %s", v.Outcome, v.Ran, left, v.m.file, v.m.line, v.Key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(explained)) {
		if !exists[key] {
			complain("explained as a survivor, but there is no such mutant any more:\n- %s", key)
		}
	}
	table(w, "package", verdicts, func(v verdict) string { return v.m.pkg.name })
	table(w, "kind", verdicts, func(v verdict) string { return v.m.kind })
	cpu := time.Duration(0)
	for _, v := range verdicts {
		cpu += v.CPU
	}
	fmt.Fprintf(w, "\n%d mutants judged in %v, with %v of processor time\n", len(verdicts), took.Round(time.Second),
		cpu.Round(time.Second))
	fmt.Fprintf(w, "%d survivors are explained in the list; %d lines above need work\n", len(explained), wrong)
	return wrong
}
