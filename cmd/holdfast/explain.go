package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/explain"
)

const explainHelp = `Explain what has happened to a lock or an election: who held, who waited, how each
entry went, when it was free, and what administrators asked for. It looks back, where
"watch" looks ahead. It takes no part in the lock, and needs to read only.

The order is that of etcd's revisions, as far back as etcd has them: until its history
is compacted, often after 5 minutes or an hour. etcd keeps no times. Those that are
shown are from the entries, by the clocks of their processes. An entry is held since the
revision at which nothing was ahead of it any more: where the one before went without a
release, that is when the claim of that one was deleted, after the lock delay. With --at
it is the revision at which it was the first.

How an entry went:

    let go              released, or given up
    its session gave its lease up   it was closed, or was told that it had lost the lease
    its lease ended     it expired, or was revoked, and its session had not been told:
                        the process was dead, or cut off
    deleted by hand
    taken away          by kick --force; perhaps it was let go of before
    MinHold was over    it was released before that
    its ticket ended    it was detached, and then its time was over, or it was kicked
    goes on as a reader's     the lock was downgraded

Why a holder lost its lock only that process knows. Its log says so: give the logs of
the processes with --log, as they are. Then the cause is that of holdfast.LostError, and
what the records have is shown with their times. Without that it is not known.`

const explainExamples = `  holdfast explain billing/job-7
  holdfast explain scheduler --kind election --rev 104200
  journalctl -u worker -o cat | holdfast explain billing/job-7 --log -
  holdfast explain billing/job-7 -o json | jq -r 'select(.end == "its lease ended") | .entry.owner'`

func newExplain(a *app) *cobra.Command {
	var p place
	var from int64
	var log string
	cmd := &cobra.Command{
		Use: "explain NAME [flags]", Short: "Explain what has happened to a lock or an election",
		Long: explainHelp, Example: explainExamples, Args: exactly(1, "one NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.name = args[0]
			if from < 0 {
				return usage("--rev must not be negative")
			}
			if p.of() == "" {
				return usage("--at is for locks and elections: etcd's own clients have no %s", p.kind.noun())
			}
			lines, err := readLog(log, cmd.InOrStdin())
			if err != nil {
				return err
			}
			of := explain.Of{
				Namespace: a.namespace, Kind: holdfast.Kind(p.kind), Name: p.name, At: p.at, From: from,
			}
			return a.withClient(cmd.Context(), func(cli *clientv3.Client) error {
				return a.explain(cmd.Context(), cmd.OutOrStdout(), cli, of, lines)
			})
		},
	}
	p.addFlags(cmd, "lock, tree, election or shard (NAME/INDEX)")
	cmd.Flags().Int64Var(&from, "rev", 0, "the first `revision` to look at (default: the first that etcd still has)")
	cmd.Flags().StringVar(&log, "log", "", "a `file` with the log lines of holders and administrators; -: stdin")
	return cmd
}

// readLog reads the records in a file, or in stdin.
func readLog(name string, stdin io.Reader) ([]explain.Line, error) {
	switch name {
	case "":
		return nil, nil
	case "-":
		return explain.Lines(stdin)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, usage("--log: %w", err)
	}
	defer file.Close()
	return explain.Lines(file)
}

func (a *app) explain(
	ctx context.Context, w io.Writer, cli *clientv3.Client, of explain.Of, lines []explain.Line,
) error {
	ctx, cancel := a.bounded(ctx)
	defer cancel()
	story, err := explain.Read(ctx, cli, of)
	if err != nil {
		return fmt.Errorf("explain %s %s: %w", of.Kind, clean(of.Name, 0), err)
	}
	story.Add(lines)
	if a.output == "json" {
		for _, s := range story.Spells {
			if err := printJSON(w, spellAsJSON(s)); err != nil {
				return err
			}
		}
		return nil
	}
	p := &printer{w: w}
	before := ""
	switch {
	case story.LeftOut > 0:
		before = fmt.Sprintf("; %d older entries are left out, see --rev", story.LeftOut)
	case !story.All && of.From == 0:
		before = "; what was before is compacted"
	}
	p.f("%s %s: etcd's revisions %d to %d%s\n", kindFlag(of.Kind).noun(), clean(of.Name, 0), story.From, story.To, before)
	free := story.Free()
	for _, s := range story.Spells {
		for len(free) > 0 && free[0].To > 0 && free[0].To <= s.Entry.Revision {
			p.f("\nrev %d  free until rev %d\n", free[0].From, free[0].To)
			free = free[1:]
		}
		printSpell(p, s)
	}
	if len(free) > 0 {
		p.f("\nrev %d  free\n", free[0].From)
	}
	if len(story.Lines) > 0 {
		p.f("\nLog lines about entries that etcd's history does not have any more:\n")
		printLines(p, story.Lines)
	}
	return p.err
}

func printSpell(p *printer, s *explain.Spell) {
	e := s.Entry
	p.f("\nrev %d  %s", e.Revision, owner(e, 0))
	if e.Shared {
		p.f(", a reader")
	}
	p.f("\n")
	if !e.QueuedAt.IsZero() {
		p.f("    queued at %s\n", exact(e.QueuedAt))
	}
	switch {
	case s.Held > 0 && s.Earlier:
		p.f("    held since before rev %d", s.Held)
	case s.Held > 0:
		p.f("    held since rev %d", s.Held)
	default:
		p.f("    never held")
	}
	if !e.HeldAt.IsZero() {
		p.f(", since %s", exact(e.HeldAt))
	}
	p.f("\n")
	for _, n := range s.Asked {
		p.f("    rev %d: %v, at %s\n", n.Revision, n.Notice, exact(n.At))
	}
	for _, m := range s.Moves {
		if m.Detached() {
			p.f("    rev %d: detached until %s\n", m.Revision, exact(m.DetachedUntil))
		} else {
			p.f("    rev %d: attached by %s\n", m.Revision, owner(m.Entry, 0))
		}
	}
	if s.Ended == 0 {
		p.f("    stands\n")
	} else {
		p.f("    rev %d: %s\n", s.Ended, s.End)
	}
	printLines(p, s.Lines)
	if s.Held > 0 && s.Ended > 0 && s.End != explain.Downgraded && s.End != explain.RanOut {
		p.f("    cause of the loss: %s\n", causeText(s))
	}
}

// causeText is the cause of a loss; "none" of a hold that was released, "not known" where no record tells.
func causeText(s *explain.Spell) string {
	cause, known := s.Cause()
	switch {
	case known:
		return cause.String()
	case s.Released():
		return "none, it was released"
	default:
		return "not known"
	}
}

func printLines(p *printer, lines []explain.Line) {
	for _, l := range lines {
		p.f("    log %s: %s", clean(l.Time, 0), l.Event)
		for _, field := range [][2]string{{"cause", l.Cause}, {"by", l.By}, {"reason", l.Detail}, {"held", l.Held},
			{"error", l.Error}} {
			if field[1] != "" {
				p.f(", %s %s", field[0], clean(field[1], 0))
			}
		}
		p.f("\n")
	}
}

// spellJSON is a line of "explain" as jsonHelp describes it.
type spellJSON struct {
	Entry entryJSON    `json:"entry"`
	Held  int64        `json:"held,omitempty"`
	Early bool         `json:"held_before,omitempty"`
	Ended int64        `json:"ended,omitempty"`
	End   explain.End  `json:"end,omitempty"`
	Asked []noticeJSON `json:"asked,omitempty"`
	Cause string       `json:"cause,omitempty"`
}

func spellAsJSON(s *explain.Spell) spellJSON {
	j := spellJSON{Entry: asJSON(s.Entry), Held: s.Held, Early: s.Earlier, Ended: s.Ended, End: s.End}
	for _, n := range s.Asked {
		j.Asked = append(j.Asked, noticeJSON{n.By, n.Reason, n.At.UTC(), n.Removed})
	}
	if cause, known := s.Cause(); known {
		j.Cause = cause.String()
	} else if s.Released() {
		j.Cause = "released"
	}
	return j
}
