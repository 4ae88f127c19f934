package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/term"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
)

const watchHelp = `Watch a lock: who queues, who acquires, who releases, who is lost. It begins with
what stands there, and goes on until Ctrl-C.

On a terminal the screen shows the queue as it is, and below it the latest events.
Into a pipe or a file, and with --lines, each event is a line. Events come in the
order of etcd's history; changes of etcd's leader, hanging members and disconnections
are survived.

The events:

    queued     an entry is in the queue; one that holds at once is queued first
    acquired   an entry is the first of its queue, and no lock delay runs
    released   the holder has let go, or its session has
    left       a waiter has given up
    lost       an entry went without that: its lease expired or was revoked, or it was
               deleted by hand. The next one waits for the lock delay
    gone       an entry was removed while the watch was interrupted
    taken      released, and the name stays taken (run --min-hold)
    detached   its holder has ended the hold, and a ticket keeps it; "released", if the
               ticket ends
    attached   by the ticket another process holds
    kicked     an administrator has asked the holder to let go
    removed    an administrator takes the lock away

"holdfast ls --watch" shows all names as they are. What has happened to each entry, and
how it went, only this command tells.

With --kind shard NAME is that of all shards, and there are two events, a line for each:
a shard is owned by a member, or unowned.`

const watchExamples = `  holdfast watch billing/job-7
  holdfast watch --kind election scheduler | tee -a leaders.log
  holdfast watch --kind shard orders
  holdfast watch billing/job-7 -o json | jq -r 'select(.event == "lost") | .entry.owner'`

func newWatch(a *app) *cobra.Command {
	var p place
	var lines bool
	cmd := &cobra.Command{
		Use: "watch NAME [flags]", Short: "Watch a lock change hands", Long: watchHelp, Example: watchExamples,
		Args: exactly(1, "one NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.name = args[0]
			return a.withClient(cmd.Context(), func(cli *clientv3.Client) error {
				ctx, adm := cmd.Context(), a.admin(cli)
				// The first read is bounded; after it an outage is waited out.
				first, cancel := a.bounded(ctx)
				defer cancel()
				if p.of() == holdfast.KindShard {
					all, err := a.readShards(first, cli, p.name)
					if err != nil || len(all.owners.Owners) > 0 {
						return a.watchShards(ctx, cmd.OutOrStdout(), cli, p.name, err)
					}
				}
				now, err := p.show(first, adm)
				if err != nil {
					return err
				}
				events := adm.Events(ctx, p.of(), p.name)
				if a.output == "table" && !lines && term.IsTerminal(int(os.Stdout.Fd())) {
					q := admin.Queue{Kind: holdfast.Kind(p.kind), Name: p.name, Dead: now.Dead}
					return liveView(ctx, os.Stdout, q, events)
				}
				return a.printEvents(cmd.OutOrStdout(), events)
			})
		},
	}
	p.addFlags(cmd, "lock, tree, election or shard")
	cmd.Flags().BoolVar(&lines, "lines", false, "print a line for each event on a terminal, too")
	return cmd
}

type eventJSON struct {
	Event    audit.Event `json:"event"`
	Revision int64       `json:"revision"`
	Waiting  int         `json:"waiting"`
	Entry    entryJSON   `json:"entry"`
}

func (a *app) printEvents(w io.Writer, events iter.Seq2[admin.Event, error]) error {
	width := columns(w)
	for ev, err := range events {
		if err != nil {
			return err
		}
		if a.output == "json" {
			err = printJSON(w, eventJSON{ev.What, ev.Revision, ev.Waiting, asJSON(ev.Entry)})
		} else {
			_, err = fmt.Fprintln(w, eventLine(ev, time.Now(), width))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eventLine is an event in some columns. The time is ours: etcd's history has none.
func eventLine(ev admin.Event, now time.Time, columns int) string {
	who := owner(ev.Entry, max(26, room(columns, 54))) // of 80 columns, 22 are for the numbers
	if columns == 0 {
		who = owner(ev.Entry, 0)
	}
	return fmt.Sprintf("%s  %-8s  %-26s  rev %d, %d wait", exact(now), ev.What, who, ev.Revision, ev.Waiting)
}

// screen is what a live view shows.
type screen struct {
	queue  admin.Queue
	events []string // the latest ones
	width  int
}

// liveView redraws the terminal at each event, and each second so that times go on.
func liveView(ctx context.Context, out *os.File, q admin.Queue, events iter.Seq2[admin.Event, error]) error {
	ctx, cancel := context.WithCancel(ctx)
	type next struct {
		event admin.Event
		err   error
	}
	arrived := make(chan next)
	ended := make(chan struct{})
	go func() { // joined below
		defer close(ended)
		for ev, err := range events {
			select {
			case arrived <- next{ev, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	s := screen{queue: q}
	var failed error
	for failed == nil {
		if failed = s.draw(out, time.Now()); failed != nil {
			break
		}
		select {
		case n := <-arrived:
			if failed = n.err; failed == nil {
				s.apply(n.event, time.Now())
			}
		case <-tick.C:
		case <-ctx.Done():
			failed = ctx.Err()
		}
	}
	cancel()
	select {
	case <-ended:
	case <-arrived: // it was about to send
		<-ended
	}
	return failed
}

// keptEvents is how many events a live view shows.
const keptEvents = 8

func (s *screen) apply(ev admin.Event, now time.Time) {
	entries := slices.DeleteFunc(slices.Clone(s.queue.Entries), func(e admin.Entry) bool { return e.Key == ev.Entry.Key })
	switch ev.What {
	case admin.Queued, admin.Acquired, admin.Taken, audit.Detached, audit.Attached, audit.Kicked, audit.Removed:
		entries = append(entries, ev.Entry)
		slices.SortFunc(entries, func(a, b admin.Entry) int { return int(a.Revision - b.Revision) })
	case audit.Lost: // which its claim outlives, and delays those behind
		lost := admin.DeadClaim{Lease: ev.Entry.Lease, Revision: ev.Entry.Revision, Shared: ev.Entry.Shared}
		s.queue.Dead = append(s.queue.Dead, lost)
	case audit.Released, admin.Left, admin.Gone:
	case audit.Granted, audit.Refused, audit.Bumped, audit.Reset: // a watch has none of these
	}
	if ev.What == admin.Acquired { // all claims ahead that delay it have gone
		s.queue.Dead = slices.DeleteFunc(s.queue.Dead, func(d admin.DeadClaim) bool {
			return d.Revision < ev.Entry.Revision && !(d.Shared && ev.Entry.Shared)
		})
	}
	s.queue.Entries, s.queue.Revision = entries, ev.Revision
	s.events = append(s.events, eventLine(ev, now, s.width))
	s.events = s.events[max(0, len(s.events)-keptEvents):]
}

func (s *screen) draw(out *os.File, now time.Time) error {
	width, height, err := term.GetSize(int(out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	s.width = width
	lines := describe(s.queue, max(1, height-12-len(s.events)), now, width)
	lines = append(lines, "")
	lines = append(lines, s.events...)
	lines = append(lines, "", fmt.Sprintf("%s   Ctrl-C ends this view, nothing else", exact(now)))
	return drawLines(out, lines, width, height)
}

func cut(line string, width int) string {
	if runes := []rune(line); len(runes) > width {
		return string(runes[:width])
	}
	return line
}
