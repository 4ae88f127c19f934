//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// A summary is what a campaign has had, for people and, as JSON, for the record. Durations are in seconds.
type summary struct {
	Etcd     string // the version of the members
	Holdfast string // the commit
	Go       string
	Machine  string
	Note     string `json:",omitempty"`
	Foreign  bool   `json:",omitempty"` // on the user's etcd, whose members had no faults
	Members  int    `json:",omitempty"` // of the cluster
	Auth     bool   `json:",omitempty"` // they asked for users
	Fsync    *bool  `json:",omitempty"` // whether members waited for the disk; nil: not known
	Seed     uint64
	Workers  int // processes in each round
	Started  time.Time

	Rounds int
	Hours  float64 // of the rounds, from the start of the processes to the end of the judgment
	Busy   float64 // seconds of them in which the machine was too busy to judge what needs its speed

	Calls        int
	Acquisitions int
	Releases     int // confirmed
	ByKind       map[string]int
	Overruns     int            // calls of OnOverrun; one without a reason is a violation
	Outlived     int            // functions for which it had to be called; one without the call is a violation
	Operations   int            // writes and reads of registers, whose histories porcupine has found linearizable
	Losses       map[string]int // by cause
	Faults       map[string]int // by kind
	Writes       writes
	Margins      map[string]float64 // the least time from "lost" told to its holder until another held, by cause
	Overlaps     map[string]overlap // two held, as docs/guarantees.md says; by reason and cause
	Recoveries   recoveries
	Upstream     upstream // etcd's own lock, under the same faults
	Denominators denominators
	Model        followed       `json:",omitzero"` // entries of all kinds but permits
	Permits      followed       `json:",omitzero"`
	Leases       followedLeases `json:",omitzero"`
	Violations   []string       // of which the program cannot tell what they are of: see verdicts.go
	Kept         []string       `json:",omitempty"` // the records of the rounds that had these, by name
	OfMachine    []string       `json:",omitempty"` // violations by a process that did not run

	Counts map[string]int     // all that was counted
	Worst  map[string]float64 // the longest and shortest of what was measured
	stats  oracle.Stats
}

// writes are those made by holders.
type writes struct {
	Guarded   int // by etcdfence.Writer, and carried out
	Unguarded int // by an ordinary put after Check, and carried out
	Late      int // of the unguarded: those carried out when the writer held no more
}

// An overlap is a case in which two hold.
type overlap struct {
	Count   int
	Longest float64
}

// followed says of how many entries each step was one of the model's. One that is not is a violation.
type followed struct {
	Entries, Held, Waited, Delayed int            // those that were followed to their ends
	Refused                        int            // those with a step that the model does not have
	Stopped                        map[string]int // those that were followed for a part or not at all, by the reason
}

// recoveries are the times from the end of faults to the next acquisition.
type recoveries struct {
	Count         int
	Mean, Longest float64
	total         time.Duration
}

func newSummary(o options) *summary {
	s := &summary{
		Holdfast: commit(), Go: runtime.Version(), Machine: machine(), Note: o.note, Seed: o.seed, Workers: o.workers,
		Foreign: len(o.foreign.endpoints) > 0, Started: time.Now().UTC().Truncate(time.Second), stats: oracle.NewStats(),
	}
	if !s.Foreign {
		s.Auth = o.auth
		s.Members, s.Fsync = cmp.Or(o.members, defaultMembers), &o.fsync
	}
	return s
}

// unknownCommit is what commit returns outside of the repository.
const unknownCommit = "unknown"

// commit returns that of the working tree.
func commit() string {
	id, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return unknownCommit
	}
	changed, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no").Output()
	if err != nil || len(changed) > 0 {
		return strings.TrimSpace(string(id)) + ", with changes"
	}
	return strings.TrimSpace(string(id))
}

func machine() string {
	model := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, after, ok := strings.Cut(string(text), "model name\t: "); ok {
			model, _, _ = strings.Cut(after, "\n")
		}
	}
	return fmt.Sprintf("%s, %d processors, %s", runtime.GOOS, runtime.NumCPU(), model)
}

// add adds a round.
func (s *summary) add(f *round, rec *recorded, took time.Duration) {
	s.Rounds++
	s.Hours += took.Hours()
	s.Busy += busyTime(rec.Record.Faults[len(rec.Faults):]).Seconds() // not the faults that were made
	s.stats.Add(f.stats)
	s.addRecoveries(rec)
	of := fmt.Sprintf("seed %d, round %d: ", s.Seed, f.number)
	for _, v := range rec.violations {
		s.Violations = append(s.Violations, of+v)
	}
	for _, v := range rec.ofMachine {
		s.OfMachine = append(s.OfMachine, of+v)
	}
	s.fill()
}

// busyTime returns for how long the machine was too busy for a judgment.
func busyTime(faults []oracle.Fault) (sum time.Duration) {
	busy := slices.DeleteFunc(slices.Clone(faults), func(f oracle.Fault) bool { return f.Process != oracle.Everywhere })
	slices.SortFunc(busy, func(a, b oracle.Fault) int { return cmp.Compare(a.From, b.From) })
	var until time.Duration
	for _, f := range busy { // they overlap: each member has its own
		sum += max(f.To-max(f.From, until), 0)
		until = max(until, f.To)
	}
	return sum
}

// addRecoveries finds, for each fault, when the process that had it acquired again, or any if the cluster had it.
func (s *summary) addRecoveries(rec *recorded) {
	granted := make(map[string][]time.Duration) // by process
	for _, h := range rec.Record.Holds {
		granted[h.Process] = append(granted[h.Process], h.Granted)
		granted[""] = append(granted[""], h.Granted)
	}
	for _, at := range granted {
		slices.Sort(at)
	}
	for _, d := range rec.Faults {
		from := d.To
		if d.Process == oracle.Everywhere {
			d.Process = ""
		}
		for again := true; again; { // with the faults that follow before it has recovered
			i, _ := slices.BinarySearch(granted[d.Process], from)
			if i == len(granted[d.Process]) {
				break // the round is over
			}
			again = false
			next := granted[d.Process][i]
			for _, other := range rec.Faults {
				if (other.Process == "" || other.Process == d.Process) && other.From < next && other.To > from {
					from, again = other.To, true
				}
			}
			if !again {
				s.Recoveries.Count++
				s.Recoveries.total += next - from
				s.Recoveries.Longest = max(s.Recoveries.Longest, (next - from).Seconds())
			}
		}
	}
}

// fill sets what is computed from the statistics.
func (s *summary) fill() {
	c := s.stats.Counts
	s.Counts, s.Worst = c, make(map[string]float64)
	s.Calls, s.Acquisitions, s.Releases = c[calls], c[oracle.Granted], c[released]
	s.Overruns, s.Outlived, s.Operations = c[overruns], c[outlived], c[operations]
	s.ByKind, s.Losses, s.Faults = below(c, acquiredPrefix), below(c, oracle.LostPrefix), below(c, faultPrefix)
	s.Writes = writes{Guarded: c[oracle.FencedWrites], Unguarded: c[oracle.PlainWrites], Late: c[oracle.LatePlainWrites]}
	s.Margins, s.Overlaps = make(map[string]float64), make(map[string]overlap)
	for what, d := range s.stats.Worst {
		s.Worst[what] = d.Seconds()
		if rest, ok := strings.CutPrefix(what, oracle.MarginPrefix); ok {
			s.Margins[strings.TrimSuffix(rest, ", at least")] = d.Seconds()
		}
	}
	for reason, n := range below(c, oracle.OverlapPrefix) {
		s.Overlaps[reason] = overlap{n, s.stats.Worst[oracle.OverlapPrefix+reason+", at most"].Seconds()}
	}
	s.Denominators = denominatorsOf(c)
	s.Upstream = upstream{c[upstreamHeld], c[upstreamBoth], s.Worst[upstreamBothAtMost]}
	s.Model, s.Permits, s.Leases = followedOf(c, ""), followedOf(c, modeltrace.Permits), leasesOf(c)
	if n := s.Recoveries.Count; n > 0 {
		s.Recoveries.Mean = s.Recoveries.total.Seconds() / float64(n)
	}
}

func followedOf(c map[string]int, kind string) followed {
	return followed{c[kind+modeltrace.Followed], c[kind+modeltrace.Held], c[kind+modeltrace.Waited],
		c[kind+modeltrace.Delayed], c[kind+refusedSteps], below(c, kind+modeltrace.Stopped)}
}

func below(counts map[string]int, prefix string) map[string]int {
	all := make(map[string]int)
	for what, n := range counts {
		if rest, ok := strings.CutPrefix(what, prefix); ok {
			all[rest] = n
		}
	}
	return all
}

func sum(counts map[string]int) (n int) {
	for _, of := range counts {
		n += of
	}
	return n
}

func (s *summary) losses() int { return sum(s.Losses) }
func (s *summary) faults() int { return sum(s.Faults) }

// write writes the summary to a file, if there is one.
func (s *summary) write(file string) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o600)
}

// String returns the summary for people.
func (s *summary) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("etcd %s, holdfast %s, %s, seed %d, %d processes", s.Etcd, s.Holdfast, s.Go, s.Seed, s.Workers)
	line("%s", s.Machine)
	if s.Foreign {
		line("on an etcd that was named by -endpoints, whose members had no faults")
	}
	if s.Fsync != nil {
		line("%d members, which wait for the disk: %t, which ask for users: %t", s.Members, *s.Fsync, s.Auth)
	}
	line("%d rounds, %.2f hours; for %.0f s of them the machine was too busy for judgments of its speed", s.Rounds,
		s.Hours, s.Busy)
	line("%d calls, %d acquisitions, %d confirmed releases", s.Calls, s.Acquisitions, s.Releases)
	list := func(title string, counts map[string]int) {
		line("%s: %d", title, sum(counts))
		for _, what := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
			return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
		}) {
			line("%8d %s", counts[what], what)
		}
	}
	list("acquired", s.ByKind)
	list("faults", s.Faults)
	list("losses that were told", s.Losses)
	line("writes of holders: %d guarded, none late unless a violation says so; %d unguarded, %d of them carried out when "+
		"the writer held no more", s.Writes.Guarded, s.Writes.Unguarded, s.Writes.Late)
	line("OnOverrun was called %d times, never without a reason, and for each of %d functions that outlived their holds "+
		"by far, unless a violation says so", s.Overruns, s.Outlived)
	line("%d operations on fenced registers and marks, linearizable unless a violation says otherwise", s.Operations)
	for _, kind := range []struct {
		what string
		followed
	}{{"entries", s.Model}, {"permits", s.Permits}} {
		line("compared with the model: %d %s to their ends (%d held, %d had others ahead, %d waited for a lock delay), "+
			"%d refused", kind.Entries, kind.what, kind.Held, kind.Waited, kind.Delayed, kind.Refused)
		list(kind.what+" that were not followed to their ends", kind.Stopped)
	}
	line("compared with the model: %d leases (%d renewals, %d replies of an earlier term, %d suspensions and %d expired, "+
		"%d of these in time by the clock), %d refused", s.Leases.Leases, s.Leases.Renewals, s.Leases.Dropped,
		s.Leases.Suspended, s.Leases.Expired, s.Leases.Timely, s.Leases.Refused)
	line("from the end of a fault to the next acquisition: %d times, %.2f s on average, %.2f s at most",
		s.Recoveries.Count, s.Recoveries.Mean, s.Recoveries.Longest)
	line("a lost hold was told before the next one held, at least by:")
	for _, cause := range slices.Sorted(maps.Keys(s.Margins)) {
		line("%8.3f s %s", s.Margins[cause], cause)
	}
	never := ""
	if len(s.Overlaps) == 0 {
		never = " never"
	}
	line("two held, as docs/guarantees.md says:%s", never)
	for _, reason := range slices.Sorted(maps.Keys(s.Overlaps)) {
		line("%8d times, %.3f s at most: %s", s.Overlaps[reason].Count, s.Overlaps[reason].Longest, reason)
	}
	for _, row := range s.Denominators.rows() {
		line("%s: %s", strings.ReplaceAll(row[0], "`", ""), row[1])
	}
	line("%v", s.Upstream)
	line("violations of the machine, by processes that did not run: %d", len(s.OfMachine))
	for _, v := range s.OfMachine {
		line("  %s", v)
	}
	line("violations: %d", len(s.Violations))
	for _, v := range s.Violations {
		line("  %s", v)
	}
	return b.String()
}
