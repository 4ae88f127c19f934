package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
)

const showHelp = `Show who holds a lock, since when, and who waits, in the order in which they will
hold. All of it is as it stood at one revision of etcd.

Owner, host, pid and times are what each process wrote of itself, by its own clock.
TTL is how long the lease lives on unless it is renewed: a process that is alive
renews it all the time.

Several readers may hold a lock together, and permits of a semaphore (--kind semaphore).
The first of them is shown as its holder, the others with "holds" as their place.
A tree lock is shared at each path above its own: "show --kind tree billing" shows
those who hold paths below billing, and which.

Of a job that is done again and again, "show" has the last run that was recorded
(run --expect), and by when the next one is due. With --overdue it prints nothing if
all is well, and exits with 1 if that time is over, or if no run is recorded.

With --kind shard NAME is that of all shards: "show" has a table of them, each with its
owner, for how long that owns it, and the member that it is assigned to, if that is
another one. "show --kind shard orders/7" shows the queue of one shard.

After a holder that went without a release, as in a crash, nobody holds until a lock
delay is over: "show" says who is first, whose claim it waits for, and for how long. Such
a claim is also shown of a lock that is free: the next to come waits for it. An entry
that etcd has lost the claim of is marked: if it is lost, too, nobody waits.

A lock that is free is no error: "show" says so and exits with 0. Any name that is
not in use is free, a misspelled one too, so a hint on stderr says where to look.`

const showExamples = `  holdfast show billing/job-7
  holdfast show --kind election scheduler
  holdfast show --kind semaphore uploads
  holdfast show --kind shard orders
  holdfast show --at /app/locks/report       # what etcdctl lock /app/locks/report locks
  holdfast show billing/job-7 -o json | jq .held
  holdfast show --overdue nightly            # in a crontab, which mails what is said
  holdfast show --all billing/job-7 | less   # a queue of thousands`

func newShow(a *app) *cobra.Command {
	var p place
	var all, late bool
	cmd := &cobra.Command{
		Use: "show NAME [flags]", Short: "Show who holds a lock and who waits", Long: showHelp, Example: showExamples,
		Args: exactly(1, "one NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.name = args[0]
			return a.withClient(cmd.Context(), func(cli *clientv3.Client) error {
				adm := a.admin(cli)
				ctx, cancel := a.bounded(cmd.Context())
				defer cancel()
				if p.of() == holdfast.KindShard && !late {
					all, err := a.readShards(ctx, cli, p.name)
					if err != nil || len(all.owners.Owners) > 0 {
						return a.printShards(cmd.OutOrStdout(), all, err)
					}
				}
				q, err := p.show(ctx, adm)
				if err != nil {
					return err
				}
				if late {
					return overdue(q, time.Now())
				}
				if a.output == "json" {
					return printJSON(cmd.OutOrStdout(), queueAsJSON(q))
				}
				rows := 20
				if all {
					rows = len(q.Entries)
				}
				out := cmd.OutOrStdout()
				_, err = fmt.Fprint(out, strings.Join(describe(q, rows, time.Now(), columns(out)), "\n")+"\n")
				if err == nil && len(q.Entries) == 0 && !q.LastRun.Known() {
					_, err = fmt.Fprintln(cmd.ErrOrStderr(), p.elsewhere())
				}
				return err
			})
		},
	}
	p.addFlags(cmd, "lock, tree, semaphore, election or shard")
	cmd.Flags().BoolVar(&all, "all", false, "show every waiter, not the first 20")
	cmd.Flags().BoolVar(&late, "overdue", false, "say nothing unless a run is overdue; then exit with 1")
	return cmd
}

// elsewhere says where a holder may be that was expected here.
func (p *place) elsewhere() string {
	if p.at {
		return fmt.Sprintf("If you expected a holder: nothing is below %s/ in etcd. Give the prefix as the other\n"+
			"clients do: with a \"/\" at its end it is another lock.", clean(p.name, 0))
	}
	return "If you expected a holder: \"holdfast ls\" lists the names in use. --kind, --at and\n" +
		"--namespace look elsewhere."
}

type queueJSON struct {
	Kind     holdfast.Kind `json:"kind"`
	Name     string        `json:"name"`
	Revision int64         `json:"revision"`
	Held     bool          `json:"held"`
	Waiting  int           `json:"waiting"`
	Limit    int           `json:"limit,omitempty"`
	Dead     []deadJSON    `json:"dead_claims,omitempty"`
	LastRun  *runJSON      `json:"last_run,omitempty"`
	Entries  []entryJSON   `json:"entries"`
}

type deadJSON struct {
	Lease      string `json:"lease"` // of the entry that has gone
	Revision   int64  `json:"revision"`
	Key        string `json:"key"`
	LockDelay  int64  `json:"lock_delay_ms"`
	ToldWithin int64  `json:"told_within_ms"`
}

func queueAsJSON(q admin.Queue) queueJSON {
	_, held := q.Holder()
	j := queueJSON{
		q.Kind, q.Name, q.Revision, held, q.Waiting(), q.Limit, nil, runAsJSON(q.LastRun, time.Now()),
		make([]entryJSON, 0, len(q.Entries)),
	}
	for _, e := range q.Entries {
		j.Entries = append(j.Entries, asJSON(e))
	}
	for _, d := range q.Dead {
		lease := hex(admin.Entry{Lease: d.Lease})
		j.Dead = append(j.Dead, deadJSON{lease, d.Revision, d.Key, d.LockDelay.Milliseconds(), d.ToldWithin.Milliseconds()})
	}
	return j
}

// describe is a queue in lines for a terminal of some columns, except for keys, the name and the path of a tree lock
// below it, which are not shortened. It shows at most rows waiters.
func describe(q admin.Queue, rows int, now time.Time, columns int) []string {
	title := fmt.Sprintf("%s %s", q.Kind, clean(q.Name, 0))
	if q.Kind == holdfast.KindSemaphore {
		title += fmt.Sprintf(", limit %d", q.Limit)
	}
	h, held := q.Holder()
	waiting := []string{fmt.Sprintf("  waiting   %d", q.Waiting())}
	var lines []string
	switch {
	case len(q.Entries) == 0:
		return slices.Concat([]string{title + ": free"}, describeDead(q.Dead), describeRun(q.LastRun, now))
	case !held:
		lines = append([]string{title + ": nobody holds yet"}, describeDead(q.Dead)...)
		lines = slices.Concat(lines, describeRun(q.LastRun, now), waiting)
	default:
		lines = []string{title, "  held by   " + owner(h, room(columns, 12)), "  since     " + heldText(h, now)}
		if h.Detached() {
			until := " until " + exact(h.DetachedUntil)
			lines[1] = "  detached  by " + owner(h, room(columns, 15+len(until))) + until
		}
		lines = slices.Concat(lines, details(h, columns), describeRun(q.LastRun, now), waiting)
		if len(q.Entries) == 1 {
			return lines
		}
	}
	return append(lines, table(q, rows, now, columns)...)
}

// describeDead says what those who come, or wait, wait for.
func describeDead(dead []admin.DeadClaim) []string {
	if len(dead) == 0 {
		return nil
	}
	d := dead[0]
	lines := []string{fmt.Sprintf("  delay     the entry of revision %d went without a release, with lease %s",
		d.Revision, hex(admin.Entry{Lease: d.Lease}))}
	if d.ToldWithin > 0 { // otherwise it is not known
		lines = append(lines, fmt.Sprintf("            a waiter lets pass %v, or up to %v if its session lives, and then "+
			"holds", d.LockDelay, d.ToldWithin))
	}
	if len(dead) > 1 {
		lines = append(lines, fmt.Sprintf("            and %d more, at the same time", len(dead)-1))
	}
	return lines
}

// table shows the entries behind the first holder, or all if none holds.
func table(q admin.Queue, rows int, now time.Time, columns int) (lines []string) {
	skip := min(1, len(q.Holders()))
	holding := len(q.Holders())
	const row, before = "%6v  %-20s  %7s  %4s  %s", 45
	lines = append(lines, "", fmt.Sprintf(row, "PLACE", "QUEUED", "FOR", "TTL", "OWNER"))
	for i, e := range q.Entries[skip:min(len(q.Entries), rows+skip)] {
		i += skip
		at := "-"
		if !e.QueuedAt.IsZero() {
			at = exact(e.QueuedAt)
		}
		place, more := strconv.Itoa(i+1-holding), ""
		switch {
		case e.Shared && e.Value != "":
			more = ": " + clean(e.Value, room(columns, before+15))
		case e.Weight > 0:
			more = fmt.Sprintf(", weight %d, revision %d", e.Weight, e.Revision)
		case i < holding && e.Detached():
			more = ", detached until " + exact(e.DetachedUntil)
		case i < holding: // another reader
			more = fmt.Sprintf(", token %v", e.Token)
		}
		who := owner(e, room(columns, before+utf8.RuneCountInString(more))) + more
		if i < holding {
			place = "holds"
		}
		lines = append(lines, fmt.Sprintf(row, place, at, age(e.QueuedAt, now), ttl(e), who))
	}
	if more := len(q.Entries) - skip - rows; more > 0 {
		lines = append(lines, fmt.Sprintf("        and %d more: see --all", more))
	}
	return lines
}

func heldText(e admin.Entry, now time.Time) string {
	if e.HeldAt.IsZero() && !e.QueuedAt.IsZero() {
		return "after " + since(e.QueuedAt, now) + ", when it queued"
	}
	return since(e.HeldAt, now)
}

// details is what a holder's entry says beyond owner and time.
func details(e admin.Entry, columns int) (lines []string) {
	add := func(name, text string) { lines = append(lines, fmt.Sprintf("  %-8s  %s", name, text)) }
	switch {
	case e.Value == "":
	case e.Shared:
		add("path", clean(e.Value, 0))
	case e.Owner != "" || e.Host != "": // otherwise it stands for the owner
		add("value", clean(e.Value, room(columns, 12)))
	}
	if e.Host != "" {
		pid := fmt.Sprintf("pid %d on ", e.PID)
		add("process", pid+clean(e.Host, room(columns, 12+len(pid))))
	}
	if e.Weight > 0 {
		add("weight", strconv.Itoa(e.Weight))
	}
	switch {
	case e.Token > 0:
		add("token", e.Token.String())
	case e.Weight > 0: // a permit has none
		add("revision", fmt.Sprintf("%d: kick takes it as its --token", e.Revision))
	default:
		add("token", fmt.Sprintf("not known any more; kick takes its revision: --token %d", e.Revision))
	}
	switch {
	case e.Lease == 0:
		add("lease", "none: the entry stays until it is deleted")
	case e.TTL <= 0: // watch does not ask for it
		add("lease", hex(e))
	default:
		add("lease", fmt.Sprintf("%s, expires in %s unless renewed", hex(e), ttl(e)))
	}
	if e.Unclaimed {
		add("claim", "none: etcd has lost it. If this lease is revoked, those behind do not wait")
	}
	if !e.TakenUntil.IsZero() {
		add("released", "and taken until "+exact(e.TakenUntil)+" (--min-hold)")
	}
	if n := e.Notice; !n.At.IsZero() {
		what := "to let go"
		if n.Removed {
			what = "and is being removed"
		}
		at := " at " + exact(n.At)
		add("asked", what+", by "+clean(n.By, room(columns, 12+len(what+", by "+at)))+at)
		add("", clean(n.Reason, room(columns, 12)))
	}
	add("key", clean(e.Key, 0))
	return lines
}
