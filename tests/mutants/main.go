//go:build linux

// Command mutants changes the code in small ways, one at a time, and says which changes no test notices.
// README.md tells how to read what it prints.
package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A target is a package that is mutated, or some files of it.
type target struct {
	pkg   string
	files []string
}

var targets = []target{
	{pkg: "internal/queue"}, {pkg: "internal/leftovers"},
	{pkg: "internal/hold"}, {pkg: "internal/front"}, {pkg: "internal/layout"}, {pkg: "internal/watching"},
	{pkg: "internal/requests"}, {pkg: "internal/lease"}, {pkg: "session"}, {pkg: "locker"},
	{pkg: "election"}, {pkg: "member"}, {pkg: "shard"},
	{pkg: "lastrun"}, {pkg: "fencing"}, {pkg: "internal/fence"}, {pkg: "fencing/etcdfence"}, {pkg: "fencing/memfence"},
	{pkg: "fencing/sqlfence"}, {pkg: "fencing/httpfence"}, {pkg: "fencing/grpcfence"},
	{"cmd/holdfast", []string{"supervise.go", "child_unix.go", "signals.go"}},
}

type options struct {
	root, packages, only, with, explained, record, work string

	list, again, verbose bool
	sample, parallel     int
	seed                 uint64
	limits
}

type limits struct{ slow, time, budget time.Duration }

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "the directory of the root module")
	flag.StringVar(&o.packages, "packages", "", "mutate these only: names relative to the root, with commas")
	flag.StringVar(&o.only, "only", "", "judge the mutants of one `file`, or of one file:line")
	flag.IntVar(&o.sample, "sample", 0, "judge `n` mutants, drawn from all packages at random; 0 for all")
	flag.Uint64Var(&o.seed, "seed", 1, "which sample is drawn")
	flag.BoolVar(&o.list, "list", false, "list the mutants and judge none")
	flag.StringVar(&o.with, "with", "", "run tests of these `packages`, too, with commas, after the root's")
	flag.DurationVar(&o.budget, "budget", 3*time.Second, "the processor time for judging one mutant")
	flag.DurationVar(&o.slow, "slow", 10*time.Second, "a test that takes longer judges nothing")
	flag.IntVar(&o.parallel, "p", 1, "processes at once")
	flag.DurationVar(&o.time, "time", 0, "judge no further mutant after this time; 0 for no limit")
	flag.StringVar(&o.record, "record", "", "a `file` to add verdicts to; what it has a verdict of is not judged again")
	flag.BoolVar(&o.again, "again", false, "with -record: judge again what has survived")
	flag.StringVar(&o.work, "work", "", "a `directory` to keep binaries and coverage in for the next run")
	flag.StringVar(&o.explained, "explained", "tests/mutants/survivors.txt", "the `file` of explained survivors")
	flag.BoolVar(&o.verbose, "v", false, "print each verdict")
	flag.Parse()
	wrong, err := o.run(os.Stdout, targets)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if wrong > 0 {
		os.Exit(1)
	}
}

// run returns how many verdicts contradict the list of explained survivors.
func (o *options) run(w io.Writer, targets []target) (wrong int, err error) {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return 0, err
	}
	module, err := moduleOf(root)
	if err != nil {
		return 0, err
	}
	t, err := load(root, module+"/internal/mutant", targets)
	if err != nil {
		return 0, err
	}
	chosen, err := o.choose(t)
	if err != nil {
		return 0, err
	}
	if o.list {
		for _, m := range chosen {
			fmt.Fprintf(w, "%d %s\n", m.id, m)
		}
		fmt.Fprintln(w, len(chosen), "mutants")
		return 0, nil
	}
	explained, err := readExplained(o.explained)
	if err != nil {
		return 0, err
	}
	record, known, err := openRecord(o.record)
	if err != nil {
		return 0, err
	}
	r, tests, err := o.prepare(w, t)
	if err != nil {
		return 0, err
	}
	if o.work == "" {
		defer os.RemoveAll(r.dir)
	}
	return o.judge(w, judging{t, r, tests, chosen, explained, known, record})
}

type judging struct {
	t         *tree
	r         *runner
	tests     []*test
	chosen    []*mutant
	explained map[string]string
	known     map[string]verdict // of an earlier run
	record    *record
}

func (o *options) judge(w io.Writer, j judging) (wrong int, err error) {
	start := time.Now()
	var todo []*mutant
	var verdicts []verdict
	for _, m := range j.chosen {
		if v, ok := j.known[m.key()]; ok && (v.killed() || !o.again) {
			v.m = m
			verdicts = append(verdicts, v)
		} else {
			todo = append(todo, m)
		}
	}
	left := 0
	for len(todo) > 0 {
		n := min(len(todo), 10*o.parallel)
		if o.time > 0 && time.Since(start) > o.time {
			left = len(todo)
			break
		}
		j.r.judge(todo[:n], j.tests, o.budget, func(v verdict) {
			if o.verbose {
				fmt.Fprintf(w, "%s by %q, %d tests, %v: %s\n", v.Outcome, v.Test, v.Ran, v.CPU.Round(time.Millisecond), v.m)
			}
			verdicts = append(verdicts, v)
			err = errors.Join(err, j.record.add(v))
		})
		todo = todo[n:]
	}
	wrong = report(w, verdicts, j.t.mutants(), j.explained, time.Since(start))
	if left > 0 {
		fmt.Fprintln(w, left, "mutants were left for want of time")
	}
	return wrong, err
}

// prepare builds the tests and runs each once.
func (o *options) prepare(w io.Writer, t *tree) (*runner, []*test, error) {
	r := &runner{parallel: max(1, o.parallel), slow: o.slow}
	dir, err := filepath.Abs(o.work)
	if err != nil {
		return nil, nil, err
	}
	if o.work == "" {
		dir, err = os.MkdirTemp("", "mutants-")
	} else {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, nil, err
	}
	r.dir = dir
	start := time.Now()
	overlay, err := t.overlay(dir)
	if err != nil {
		return nil, nil, err
	}
	hash := sha256.New()
	for _, p := range t.pkgs {
		for _, f := range p.files {
			hash.Write(f.instrumented(t.runtime))
		}
	}
	r.sources = hash.Sum(nil)
	r.env = []string{"GOFLAGS=-overlay=" + overlay} // for tests that build a program
	bins, err := t.testPackages(words(o.with))
	if err != nil {
		return nil, nil, err
	}
	if err := t.build(bins, dir, overlay); err != nil {
		return nil, nil, err
	}
	fmt.Fprintf(w, "%d mutants; built the tests of %d packages in %v\n", len(t.mutants()), len(bins),
		time.Since(start).Round(time.Second))
	start = time.Now()
	tests, err := r.cover(bins, t.last)
	if err != nil {
		return nil, nil, err
	}
	fmt.Fprintf(w, "ran each of %d tests in %v\n", len(tests), time.Since(start).Round(time.Second))
	for _, t := range tests {
		if t.Bad != "" {
			fmt.Fprintf(w, "judges nothing: %s of %s %s\n", t.Name, t.bin.pkg, t.Bad)
		}
	}
	return r, tests, nil
}

// choose returns the mutants that are to be judged.
func (o *options) choose(t *tree) ([]*mutant, error) {
	all := t.mutants()
	if o.sample > 0 && o.sample < len(all) {
		// Most of a sample stays the same when the code changes a little.
		slices.SortFunc(all, func(a, b *mutant) int { return bytes.Compare(o.lot(a), o.lot(b)) })
		all = all[:o.sample]
		slices.SortFunc(all, func(a, b *mutant) int { return a.id - b.id })
	}
	if names := words(o.packages); len(names) > 0 {
		all = slices.DeleteFunc(all, func(m *mutant) bool { return !slices.Contains(names, m.pkg.name) })
	}
	if o.only != "" {
		all = slices.DeleteFunc(all, func(m *mutant) bool {
			return m.file != o.only && fmt.Sprintf("%s:%d", m.file, m.line) != o.only
		})
	}
	if len(all) == 0 {
		return nil, errors.New("no mutant is chosen")
	}
	return all, nil
}

// lot is what a mutant draws when a sample is taken.
func (o *options) lot(m *mutant) []byte {
	hash := sha256.Sum256(fmt.Append(nil, o.seed, m.key()))
	return hash[:]
}

func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

// moduleOf reads the module's path from go.mod.
func moduleOf(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(name), nil
		}
	}
	return "", fmt.Errorf("%s has no module line", filepath.Join(dir, "go.mod"))
}
