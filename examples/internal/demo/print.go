package demo

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
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
func (d *Demo) Row(who string, token holdfast.Token, tone Tone, format string, args ...any) {
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
	live := d.live
	d.Live()
	fmt.Fprintln(d.out, line)
	d.Live(live...)
}

// Live shows lines below all that is printed, in place of those that it has shown before. Where the output is no
// terminal it shows nothing.
func (d *Demo) Live(lines ...string) {
	if !d.colored {
		return
	}
	if n := len(d.live); n > 0 {
		fmt.Fprintf(d.out, "\x1b[%dA\x1b[J", n) // up, and clear all below
	}
	for _, line := range lines {
		fmt.Fprintln(d.out, line)
	}
	d.live = lines
}

// Look leaves people two seconds to look at what is shown. Where the output is no terminal it returns at once.
func (d *Demo) Look(ctx context.Context) error {
	if !d.colored {
		return nil
	}
	select {
	case <-time.After(2 * time.Second):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
