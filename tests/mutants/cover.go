//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	seen "github.com/holdfast-go/holdfast/tests/mutants/mutant"
)

// A test is one test of one binary, and what a run of it alone has shown.
type test struct {
	bin  *binary
	Name string
	CPU  time.Duration // processor time, without that for starting the binary
	Wall time.Duration
	Bad  string // why it judges nothing; empty if it does

	Reached, Differs []int // mutants
}

// cover runs each test of each binary by itself, and notes which mutants it could tell.
func (r *runner) cover(bins []*binary, last int) ([]*test, error) {
	var all []*test
	for _, b := range bins {
		tests, err := r.coverBinary(b, last)
		if err != nil {
			return nil, fmt.Errorf("tests of %s: %w", b.pkg, err)
		}
		all = append(all, tests...)
	}
	return all, nil
}

func (r *runner) coverBinary(b *binary, last int) ([]*test, error) {
	stored, err := r.stored(b)
	if err != nil {
		return nil, err
	}
	var known []*test
	if readJSON(stored, &known) {
		for _, t := range known {
			t.bin = b
		}
		return known, nil
	}
	names, err := b.tests()
	if err != nil {
		return nil, err
	}
	idle := r.run(b, []string{"^$"}, r.slow)
	if idle.outcome != survived {
		return nil, errors.New(idle.output)
	}
	tests := make([]*test, len(names))
	errs := make([]error, len(names))
	r.each(len(names), func(i int) {
		tests[i] = &test{bin: b, Name: names[i]}
		errs[i] = r.coverTest(tests[i], last)
		tests[i].CPU = max(0, tests[i].CPU-idle.cpu)
	})
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return tests, writeJSON(stored, tests)
}

// tests lists what -test.run selects.
func (b *binary) tests() ([]string, error) {
	out, err := run(b.dir, b.path, "-test.list", "^(Test|Fuzz|Example)")
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(out)), nil
}

func (r *runner) coverTest(t *test, last int) error {
	f, err := os.CreateTemp(r.dir, "seen")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := f.Truncate(int64(last + 1)); err != nil {
		return err
	}
	res := r.run(t.bin, []string{t.Name}, r.slow, "MUTANT_SEEN="+f.Name())
	t.CPU, t.Wall = res.cpu, res.wall
	switch {
	case res.outcome != survived:
		t.Bad = "fails without a mutant: " + res.output
	case res.wall > r.slow:
		t.Bad = "takes too long"
	}
	bits, err := os.ReadFile(f.Name())
	if err != nil {
		return err
	}
	for id, b := range bits {
		if b&seen.Reached != 0 {
			t.Reached = append(t.Reached, id)
		}
		if b&seen.Differs != 0 {
			t.Differs = append(t.Differs, id)
		}
	}
	return nil
}

// runner runs test binaries.
type runner struct {
	dir      string        // for its files
	parallel int           // processes at once
	slow     time.Duration // a test that takes longer by itself judges nothing
	sources  []byte        // a hash of the instrumented copies
	env      []string
}

// each calls f with 0 to n-1, as many at once as the runner may.
func (r *runner) each(n int, f func(i int)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range r.parallel {
		workers.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}

// The outcomes of a run, or of a mutant.
const (
	survived   = "survived"
	failed     = "failed"
	panicked   = "panicked"
	timedOut   = "timed out"
	notCovered = "not covered"
	noDiff     = "no difference" // covered, but no test does anything else with the mutant
)

type result struct {
	outcome   string
	test      string // the first that failed
	output    string
	cpu, wall time.Duration
}

// run runs some tests of b, for at most about limit.
func (r *runner) run(b *binary, names []string, limit time.Duration, env ...string) result {
	// The binary stops itself; the context is for one that cannot.
	ctx, cancel := context.WithTimeout(context.Background(), 2*limit+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.path, "-test.run=^("+strings.Join(names, "|")+")$", "-test.failfast",
		"-test.timeout="+(limit+time.Second).String())
	cmd.Dir = b.dir
	cmd.Env = slices.Concat(os.Environ(), r.env, env)
	cmd.WaitDelay = time.Second // children of the tests may hold the pipe
	// A mutant of cmd/holdfast may kill the group that it is in itself.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	start := time.Now()
	err := cmd.Run()
	res := result{outcome: survived, wall: time.Since(start)}
	if s := cmd.ProcessState; s != nil {
		res.cpu = s.UserTime() + s.SystemTime()
	}
	if err == nil {
		return res
	}
	text := out.String()
	res.output = lastLines(text)
	if _, rest, ok := strings.Cut(text, "--- FAIL: "); ok {
		res.test, _, _ = strings.Cut(rest, " ")
	}
	killed := cmd.ProcessState != nil && !cmd.ProcessState.Exited() // by the limit of processor time, or by the context
	switch {
	case killed || strings.Contains(text, "panic: test timed out"):
		res.outcome = timedOut
	case strings.Contains(text, "panic: ") || strings.Contains(text, "fatal error: "):
		res.outcome = panicked
	default:
		res.outcome = failed
	}
	return res
}

func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
