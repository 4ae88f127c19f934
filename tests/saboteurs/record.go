package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// readme has a table of what must never break: each invariant, what guards it, and its saboteurs with their last runs.
const readme = "tests/saboteurs/README.md"

const (
	heading  = "| must never break | guarded by | taken out by, noticed by, at |\n| --- | --- | --- |\n"
	noneMore = "bugs of the past, not of these rows" // the row of saboteurs without an invariant
)

// run matches a saboteur in the table, the test that notices it, and the commit at which it did so last.
var run = regexp.MustCompile("`([\\w-]+)` (Test\\w+)((?: [0-9a-f]{7,})?)")

// cell is what the table says of a saboteur; of follows in it, and is the commit of its last run.
func (s saboteur) cell(of string) string {
	test, _, _ := strings.Cut(s.test, "/")
	return strings.TrimRight(fmt.Sprintf("`%s` %s %s", s.name, test, of), " ")
}

// record writes the table anew, with a run of now at commit. Of the other saboteurs the last runs stay.
func record(file string, now saboteur, commit string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, table, found := strings.Cut(string(text), heading)
	if !found {
		return fmt.Errorf("%s has no line %q", file, heading)
	}
	_, after, _ := strings.Cut(table, "\n\n")
	runs := lastRuns(table)
	runs[now.name] = commit
	return os.WriteFile(file, []byte(before+heading+tableOf(runs)+"\n"+after), 0o600)
}

// tableOf returns the rows of the table.
func tableOf(runs map[string]string) string {
	var rows strings.Builder
	for _, i := range append(slices.Clip(invariants), invariant{name: noneMore}) {
		var guards, taken []string
		for _, guard := range i.guards {
			file, funcs, _ := strings.Cut(guard, " ")
			guards = append(guards, strings.TrimRight(fmt.Sprintf("`%s` %s", file, funcs), " "))
		}
		for _, s := range saboteurs {
			if s.invariant == i.name || s.invariant == "" && i.name == noneMore {
				taken = append(taken, s.cell(runs[s.name]))
			}
		}
		fmt.Fprintf(&rows, "| %s | %s | %s |\n", i.name, strings.Join(guards, "; "), strings.Join(taken, "; "))
	}
	return rows.String()
}

// lastRuns returns the commit at which each saboteur of the table was noticed last.
func lastRuns(table string) map[string]string {
	runs := make(map[string]string)
	for _, m := range run.FindAllStringSubmatch(table, -1) {
		runs[m[1]] = strings.TrimSpace(m[3])
	}
	return runs
}
