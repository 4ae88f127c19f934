//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A kept summary is a record of a directory: the summary of one campaign.
type kept struct {
	summary
	file     string // its name there
	verdicts verdicts
}

// runsIn returns the records in a directory, and the names of those that do not count, since they do not say whether
// members waited for the disk.
func runsIn(dir string) (all []kept, without []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, nil, err
	}
	read, err := readVerdicts(filepath.Join(dir, verdictsFile))
	if err != nil {
		return nil, nil, err
	}
	for _, file := range files {
		r := kept{file: filepath.Base(file)}
		if r.file == verdictsFile {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		if err := json.Unmarshal(text, &r.summary); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", file, err)
		}
		if r.Fsync == nil {
			without = append(without, r.file)
			continue
		}
		if why := r.provesLittle(); why != "" {
			return nil, nil, fmt.Errorf("%s: %s", file, why)
		}
		for _, name := range r.Kept {
			info, err := os.Stat(filepath.Join(dir, roundsDir, name+".json.gz"))
			if err == nil && info.Size() > mostKept {
				err = fmt.Errorf("%s has %d bytes, more than %d", name, info.Size(), mostKept)
			}
			if err != nil {
				return nil, nil, fmt.Errorf("%s: the record of a round that it kept: %w", file, err)
			}
		}
		r.verdicts = read.of(r.file, r.Violations)
		r.verdicts[ofMachine] += len(r.OfMachine)
		all = append(all, r)
	}
	return all, without, read.unused()
}

// older returns a line for each record that is not of the present engine, and for each that does not count.
func older(dir string) (lines []string, err error) {
	runs, without, err := runsIn(dir)
	if err != nil {
		return nil, err
	}
	present, err := presentEngine()
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		if how := present.differs(r.Holdfast); how != "" {
			lines = append(lines, fmt.Sprintf("%s (%s) %s", r.file, r.Holdfast, how))
		}
	}
	for _, file := range without {
		lines = append(lines, file+" does not count: it does not say whether members waited for the disk (Fsync)")
	}
	return lines, nil
}

// noneCounts is what stands for the tables if there is nothing to put into them.
const noneCounts = "No record counts yet.\n"

// evidence returns the tables of docs/evidence.md: those of the summaries in a directory.
func evidence(dir string) (string, error) {
	runs, _, err := runsIn(dir)
	if err != nil {
		return "", err
	}
	if len(runs) == 0 {
		return noneCounts, nil
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("| etcd | members | fsync | seed | commit | hours | acquisitions | faults | losses told | of the lock | of the " +
		"judge | of the machine | open | record |")
	line("|%s", strings.Repeat(" --- |", 14))
	var all summary
	all.Losses, all.Margins, all.Overlaps = make(map[string]int), make(map[string]float64), make(map[string]overlap)
	faults, sorted := 0, make(verdicts)
	for _, s := range runs {
		fsync := "no"
		if *s.Fsync {
			fsync = "yes"
		}
		v := s.verdicts
		line("| %s | %d | %s | %d | %s | %.2f | %d | %d | %d | %d | %d | %d | %d | [%s](evidence/%s) |", s.Etcd, s.Members,
			fsync, s.Seed, s.Holdfast, s.Hours, s.Acquisitions, s.faults(), s.losses(), v[ofLock], v[ofJudge], v[ofMachine],
			v[open], strings.TrimSuffix(s.file, ".json"), s.file)
		all.join(&s.summary)
		faults += s.faults()
		for of, n := range v {
			sorted[of] += n
		}
	}
	line("| in all | | | | %d runs | %.2f | %d | %d | %d | %d | %d | %d | %d | |", len(runs), all.Hours, all.Acquisitions,
		faults, all.losses(), sorted[ofLock], sorted[ofJudge], sorted[ofMachine], sorted[open])
	line("")
	line("| promise | what was seen |")
	line("| --- | --- |")
	line("| no two hold what excludes each other | %d acquisitions in %d rounds, each compared with all that it "+
		"excludes |", all.Acquisitions, all.Rounds)
	line("| a release that is confirmed has removed the entry | %d releases |", all.Releases)
	for _, cause := range slices.Sorted(maps.Keys(all.Losses)) {
		least := "none of the next holders had waited for it"
		if margin, ok := all.Margins[cause]; ok {
			least = fmt.Sprintf("%.0f ms before the next one held, at least", margin*1000)
		}
		line("| told before one that waited holds: %s | %d times; %s |", cause,
			all.Losses[cause], least)
	}
	if all.Overruns > 0 {
		line("| `OnOverrun` is called only if a function has not returned in time | %d calls |", all.Overruns)
	}
	if all.Outlived > 0 {
		line("| `OnOverrun` is called for each function that goes on for 1.5 s and more | %d functions |", all.Outlived)
	}
	if all.Model.Entries > 0 {
		line("| each step of an entry is one that the [model of the queue](../tests/models/queuemodel/doc.go) has | %d "+
			"entries were followed to their ends, %d refused |", all.Model.Entries, all.Model.Refused)
	}
	if all.Permits.Entries > 0 {
		line("| each step of a permit is one that the [model of the semaphore](../tests/models/semmodel/doc.go) has | %d "+
			"permits were followed to their ends, %d refused |", all.Permits.Entries, all.Permits.Refused)
	}
	if all.Leases.Leases > 0 {
		line("| each renewal counts as in the [model of the lease](../tests/models/leasemodel/doc.go) | %d renewals of %d "+
			"leases, %d of these refused |", all.Leases.Renewals, all.Leases.Leases, all.Leases.Refused)
	}
	line("| a fenced write takes effect only while its holder holds | %d were carried out, each while its writer held |",
		all.Writes.Guarded)
	if all.Operations > 0 {
		line("| histories of data behind an `etcdfence.Writer`, and of `etcdfence.Marks`, are linearizable, by porcupine | "+
			"%d operations |", all.Operations)
	}
	line("| *not promised:* the same of a write without a fence, right after `Check` | %d were carried out, %d of them "+
		"when the writer held no more |", all.Writes.Unguarded, all.Writes.Late)
	for _, reason := range slices.Sorted(maps.Keys(all.Overlaps)) {
		line("| *not promised:* two held, because %s | %d times, %.0f ms at most |", reason, all.Overlaps[reason].Count,
			all.Overlaps[reason].Longest*1000)
	}
	for _, row := range all.Denominators.rows() {
		line("| %s | %s |", row[0], row[1])
	}
	line("| when a fault has ended, locks are acquired again | %d times, after %.2f s on average, %.1f s at most |",
		all.Recoveries.Count, all.Recoveries.Mean, all.Recoveries.Longest)
	line("| *for comparison:* etcd's own lock, by `concurrency`, under the same faults | %d acquisitions; two held %d "+
		"times, for %.0f ms at most |", all.Upstream.Acquisitions, all.Upstream.TwoHeld, all.Upstream.Longest*1000)
	return b.String(), nil
}

// join adds the summary of another campaign.
func (s *summary) join(other *summary) {
	n := float64(s.Recoveries.Count + other.Recoveries.Count)
	if n > 0 {
		s.Recoveries.Mean = (s.Recoveries.Mean*float64(s.Recoveries.Count) +
			other.Recoveries.Mean*float64(other.Recoveries.Count)) / n
	}
	s.Recoveries.Count += other.Recoveries.Count
	s.Recoveries.Longest = max(s.Recoveries.Longest, other.Recoveries.Longest)
	s.Rounds += other.Rounds
	s.Hours += other.Hours
	s.Acquisitions += other.Acquisitions
	s.Releases += other.Releases
	s.Overruns += other.Overruns
	s.Outlived += other.Outlived
	s.Operations += other.Operations
	s.Model.Entries += other.Model.Entries
	s.Model.Refused += other.Model.Refused
	s.Permits.Entries += other.Permits.Entries
	s.Permits.Refused += other.Permits.Refused
	s.Leases.Leases += other.Leases.Leases
	s.Leases.Renewals += other.Leases.Renewals
	s.Leases.Refused += other.Leases.Refused
	s.Writes.Guarded += other.Writes.Guarded
	s.Writes.Unguarded += other.Writes.Unguarded
	s.Writes.Late += other.Writes.Late
	s.Upstream.Acquisitions += other.Upstream.Acquisitions
	s.Upstream.TwoHeld += other.Upstream.TwoHeld
	s.Upstream.Longest = max(s.Upstream.Longest, other.Upstream.Longest)
	s.Violations = append(s.Violations, other.Violations...)
	s.Denominators.join(other.Denominators)
	for cause, n := range other.Losses {
		s.Losses[cause] += n
	}
	for cause, margin := range other.Margins {
		if was, ok := s.Margins[cause]; !ok || margin < was {
			s.Margins[cause] = margin
		}
	}
	for reason, o := range other.Overlaps {
		was := s.Overlaps[reason]
		s.Overlaps[reason] = overlap{was.Count + o.Count, max(was.Longest, o.Longest)}
	}
}
