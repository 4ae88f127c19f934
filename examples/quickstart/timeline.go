//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/fencing"
)

// tone is how a line is meant; on a terminal it has a colour.
type tone int

const (
	plain tone = iota
	dim        // stage directions
	good       // what holdfast is for
	bad        // what happens without
)

// timeline prints the story: time, who, what, token.
type timeline struct {
	w      io.Writer
	colour bool
	start  time.Time
}

// result is the end of one key.
type result struct {
	key, value string
	tone       tone
	meaning    string
}

const (
	widthOfWho  = 6
	widthOfWhat = 68
)

func newTimeline(f *os.File) *timeline {
	info, err := f.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &timeline{
		w:      f,
		colour: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
		start:  time.Now(),
	}
}

func (t *timeline) begin() {
	fmt.Fprintf(t.w, `One lock, two processes, and a pause longer than the lease (TTL %v).
Legend: guarded = key written through a fencing.FencedWriter, unguarded = key written by a plain Put,
        token = fencing token of the lock that the writer acquired; each new holder's is larger.

`, ttl)
	t.line(dim, "%7s  %-*s  %-*s  %6s", "time", widthOfWho, "who", widthOfWhat, "what", "token")
}

// row prints one thing that was observed now. A zero token is left out.
func (t *timeline) row(who string, token fencing.Token, tone tone, format string, args ...any) {
	shown := ""
	if token != 0 {
		shown = token.String()
	}
	t.line(tone, "%6.2fs  %-*s  %-*s  %6s", time.Since(t.start).Seconds(),
		widthOfWho, who, widthOfWhat, fmt.Sprintf(format, args...), shown)
}

func (t *timeline) end(steps int, results []result) {
	fmt.Fprintln(t.w)
	for _, r := range results {
		t.line(r.tone, "%-9s = %-20q %s", r.key, r.value, r.meaning)
	}
	fmt.Fprintf(t.w, "\nAll %d steps were observed, in %.1f s.\n", steps, time.Since(t.start).Seconds())
}

// line prints one line, without blanks at its end.
func (t *timeline) line(tone tone, format string, args ...any) {
	text := strings.TrimRight(fmt.Sprintf(format, args...), " ")
	if code := [...]string{plain: "", dim: "2", good: "32", bad: "31"}[tone]; t.colour && code != "" {
		text = "\x1b[" + code + "m" + text + "\x1b[0m"
	}
	fmt.Fprintln(t.w, text)
}
