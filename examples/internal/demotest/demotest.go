// Package demotest runs examples as processes, in their tests.
package demotest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

// runMain in the environment makes a test binary run the example: so the tests see real processes, built with the race
// detector.
const runMain = "HOLDFAST_EXAMPLE_RUN_MAIN"

// Main runs the example if this process was started by Start or Output, and otherwise the tests. TestMain calls it.
func Main(m *testing.M, main func()) {
	if os.Getenv(runMain) != "" {
		main()
		os.Exit(0)
	}
	leak.Main(m)
}

// Process is an example that runs.
type Process struct {
	cmd    *exec.Cmd
	ctx    context.Context // of the waits
	lines  chan string     // of stdout; closed at its end
	stdout strings.Builder // what was received from lines
	stderr bytes.Buffer    // to be read once the process has been waited for
}

// Start starts the example. It is killed when the test ends.
func Start(t *testing.T, args ...string) *Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Minute,
		errors.New("the example has run for three minutes"))
	args = slices.Concat([]string{"--patience=1m"}, args) // for a busy machine; an argument may say otherwise
	p := &Process{cmd: exec.CommandContext(ctx, self, args...), ctx: ctx, lines: make(chan string)}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), runMain+"=1"), &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with stdout, which Wait and the cleanup read to its end
		defer close(p.lines)
		for in := bufio.NewScanner(stdout); in.Scan(); {
			p.lines <- in.Text()
		}
	}()
	t.Cleanup(func() {
		cancel()
		p.drain()
		_ = p.cmd.Wait() // the error says how the process ended, or that it was waited for
	})
	return p
}

func (p *Process) drain() {
	for line := range p.lines {
		p.stdout.WriteString(line + "\n")
	}
}

// Await waits for the next line on stdout that matches the pattern, and returns its submatches.
func (p *Process) Await(t *testing.T, pattern string) []string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	for line := range p.lines {
		p.stdout.WriteString(line + "\n")
		if found := re.FindStringSubmatch(line); found != nil {
			return found
		}
	}
	_ = p.cmd.Wait()
	t.Fatalf("no line matches %q (%v):\n%s%s", pattern, context.Cause(p.ctx), p.stdout.String(), &p.stderr)
	return nil
}

// Signal sends a signal to the process.
func (p *Process) Signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// Wait waits until the process exits.
func (p *Process) Wait() (stdout, stderr string, exitCode int) {
	p.drain()
	_ = p.cmd.Wait() // the exit code says it
	return p.stdout.String(), p.stderr.String(), p.cmd.ProcessState.ExitCode()
}

// Output runs the example to its end and returns what it has printed. It fails the test if the exit code is not 0, or
// anything was printed to stderr.
func Output(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, code := Start(t, args...).Wait()
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	return stdout
}

// CheckShown compares output with what the package comment in main.go shows: the indented lines from the names of the
// columns on. Numbers may differ, and so may all that the regular expressions match. If inOrder is false, so may the
// order of the lines, and how often one is repeated.
func CheckShown(t *testing.T, output string, inOrder bool, mayDiffer ...string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "main.go", nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile(`(?m)^\t *time +who(.*\n)(\t.*\n)+`).FindString(file.Doc.Text())
	if shown == "" {
		t.Fatal("the package comment shows no output")
	}
	want, got := comparable(shown, inOrder, mayDiffer), comparable(output, inOrder, mayDiffer)
	if !slices.Equal(got, want) {
		t.Errorf("the package comment shows another output; paste this one:\n%s", output)
	}
}

// comparable returns the lines of an output without what differs from run to run, and without the blanks around it.
func comparable(output string, inOrder bool, mayDiffer []string) []string {
	output = regexp.MustCompile(` *\d[\d.]*`).ReplaceAllString(output, " #")
	for _, pattern := range mayDiffer {
		output = regexp.MustCompile(pattern).ReplaceAllString(output, "…")
	}
	lines := strings.FieldsFunc(output, func(r rune) bool { return r == '\n' })
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), " ")
	}
	if !inOrder {
		slices.Sort(lines)
		lines = slices.Compact(lines)
	}
	return lines
}
