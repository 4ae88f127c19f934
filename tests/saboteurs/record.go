package main

import (
	"fmt"
	"os"
	"strings"
)

// readme has a table of the saboteurs, each with its last run.
const readme = "tests/saboteurs/README.md"

// row is how the table begins that has the saboteur; what follows is its last run.
func (s saboteur) row() string {
	return fmt.Sprintf("| `%s` | %s | %s | `%s` |", s.name, s.rule, s.invariant, s.command())
}

// record writes the table anew, with this run. Of the others the last runs stay.
func record(file string, now saboteur, took duration, commit string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	runs := lastRuns(string(text))
	runs[now.name] = fmt.Sprintf(" %.0f s | %s |", took.real.Seconds(), commit)
	var table, rest strings.Builder
	before := ""
	for line := range strings.Lines(string(text)) {
		switch {
		case strings.HasPrefix(line, "| saboteur |") || strings.HasPrefix(line, "| ---"):
			rest.WriteString(line)
			before = rest.String()
		case strings.HasPrefix(line, "| `"):
		default:
			rest.WriteString(line)
		}
	}
	for _, s := range saboteurs {
		run := runs[s.name]
		if run == "" {
			run = "  | |"
		}
		table.WriteString(s.row() + run + "\n")
	}
	after := strings.TrimPrefix(rest.String(), before)
	return os.WriteFile(file, []byte(before+table.String()+after), 0o600)
}

// lastRuns returns the last cells of the rows of the table: how long each saboteur took, and at which commit.
func lastRuns(text string) map[string]string {
	runs := make(map[string]string)
	for line := range strings.Lines(text) {
		name, of, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "` |")
		if !ok || !strings.HasPrefix(line, "| `") {
			continue
		}
		if cells := strings.Split(strings.TrimSpace(of), "|"); len(cells) == 6 {
			runs[name] = cells[3] + "|" + cells[4] + "|"
		}
	}
	return runs
}
