//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
)

// What people have found a violation to be of. The program itself finds those of the machine that come of a process
// which did not run; one that none has explained is open.
const (
	ofLock    = "lock"    // holdfast broke a promise
	ofJudge   = "judge"   // the judge or the workload was wrong
	ofMachine = "machine" // a process did not run
	open      = "open"
)

// verdictsFile has, beside the summaries, what people have found.
const verdictsFile = "verdicts.json"

// A verdict is what a violation was found to be.
type verdict struct {
	Record    string // the summary's file
	Violation string // as it is there
	Of        string
	Why       string
	used      bool
}

// verdicts counts violations by what they are of.
type verdicts map[string]int

type allVerdicts []*verdict

// readVerdicts reads a file of them; there need not be one.
func readVerdicts(file string) (all allVerdicts, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, v := range all {
		if !slices.Contains([]string{ofLock, ofJudge, ofMachine}, v.Of) || v.Why == "" {
			return nil, fmt.Errorf("%s: a verdict on %s is of %q, and says why: %q; it needs a reason, and is of lock, judge "+
				"or machine", file, v.Record, v.Of, v.Why)
		}
	}
	return all, nil
}

// of counts the violations of a record.
func (all allVerdicts) of(record string, violations []string) verdicts {
	counts := make(verdicts)
	for _, text := range violations {
		i := slices.IndexFunc(all, func(v *verdict) bool { return v.Record == record && v.Violation == text })
		if i < 0 {
			counts[open]++
			continue
		}
		all[i].used = true
		counts[all[i].Of]++
	}
	return counts
}

// unused returns an error that names a verdict on what no record has.
func (all allVerdicts) unused() error {
	for _, v := range all {
		if !v.used {
			return fmt.Errorf("%s: no record %s has the violation %q", verdictsFile, v.Record, v.Violation)
		}
	}
	return nil
}
