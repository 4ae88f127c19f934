package demo

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/fencing"
)

// A Tone is the meaning of a line. On a terminal it has a color.
type Tone int

const (
	Plain Tone = iota // what a process does
	Dim               // what the example does to the processes
	Good              // what holdfast is for
	Bad               // what happens without it
)

var colors = [...]string{Plain: "", Dim: "2", Good: "32", Bad: "31"}

const (
	whoWidth  = 8
	whatWidth = 68
)

// Header prints the names of the columns.
func (d *Demo) Header() {
	d.Print(Dim, "%7s  %-*s  %-*s  %6s", "time", whoWidth, "who", whatWidth, "what", "token")
}

// Row prints what was observed now. A zero token is left out.
func (d *Demo) Row(who string, token fencing.Token, tone Tone, format string, args ...any) {
	shown := ""
	if token != 0 {
		shown = token.String()
	}
	what := fmt.Sprintf(format, args...)
	d.Print(tone, "%6.2fs  %-*s  %-*s  %6s", time.Since(d.started).Seconds(), whoWidth, who, whatWidth, what, shown)
}

// Print prints one line.
func (d *Demo) Print(tone Tone, format string, args ...any) {
	line := strings.TrimRight(fmt.Sprintf(format, args...), " ")
	if code := colors[tone]; d.colored && code != "" {
		line = "\x1b[" + code + "m" + line + "\x1b[0m"
	}
	fmt.Fprintln(d.out, line)
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
