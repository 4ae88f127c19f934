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

// evidence returns the tables of docs/evidence.md: those of the summaries in a directory.
func evidence(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return "", err
	}
	if len(files) == 0 {
		return "", fmt.Errorf("%s has no summaries", dir)
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("| etcd | seed | hours | acquisitions | faults | losses told | violations | record |")
	line("| --- | --- | --- | --- | --- | --- | --- | --- |")
	var all summary
	all.Losses, all.Margins, all.Overlaps = make(map[string]int), make(map[string]float64), make(map[string]overlap)
	faults := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		var s summary
		if err := json.Unmarshal(text, &s); err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		name := filepath.Base(file)
		line("| %s | %d | %.2f | %d | %d | %d | %d | [%s](evidence/%s) |", s.Etcd, s.Seed, s.Hours, s.Acquisitions,
			s.faults(), s.losses(), len(s.Violations), name, name)
		all.join(&s)
		faults += s.faults()
	}
	line("| in all | | %.2f | %d | %d | %d | %d | |", all.Hours, all.Acquisitions, faults, all.losses(),
		len(all.Violations))
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
		line("| histories of data behind a `FencedWriter`, and of `EtcdMarks`, are linearizable, by porcupine | %d "+
			"operations |", all.Operations)
	}
	line("| *not promised:* the same of a write without a fence, right after `Check` | %d were carried out, %d of them "+
		"when the writer held no more |", all.Writes.Unguarded, all.Writes.Late)
	for _, reason := range slices.Sorted(maps.Keys(all.Overlaps)) {
		line("| *not promised:* two held, because %s | %d times, %.0f ms at most |", reason, all.Overlaps[reason].Count,
			all.Overlaps[reason].Longest*1000)
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
