package main

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
)

const lsHelp = `List the locks, tree locks and elections of the namespace that are held. With
PREFIX only names that begin with it are listed. A tree lock is listed at its own
path, and at each path above, where it is shared.

Locks that no process holds do not exist in etcd, so they are not listed. Neither
are those under prefixes of etcd's own clients: see "holdfast show --at". Semaphores
and shards are listed with --kind only.

FOR is how long the holder has held. WAITING counts the entries behind it; the
goroutines of one process that wait for the same name share one entry. While a lock
delay runs, because a holder went without a release, the holder is "none yet": see
"show".

--watch goes on until Ctrl-C. On a terminal it shows the names as they are, the one
for which a client has waited longest first. Into a pipe or a file, and with -o json,
each name is a line, and is one again when its holder or its waiters have changed.
It needs the same role, keeps all entries in memory, and looks at all keys once a
minute. "holdfast watch NAME" tells of one name what it does not: each entry that
queues, acquires, is released or lost, in the order of etcd's history, and how it went.

--sessions lists the processes instead: each that has a session, also if it holds
nothing.`

const lsExamples = `  holdfast ls
  holdfast ls billing/
  holdfast ls --kind election
  holdfast ls --kind semaphore
  holdfast ls -o json | jq -r 'select(.waiting > 10) | .name'
  holdfast ls --watch
  holdfast ls billing/ --watch -o json | jq -r 'select(.waiting > 10) | .name'
  holdfast ls --sessions`

func newLs(a *app) *cobra.Command {
	var only kindFlag
	var sessions, follow bool
	cmd := &cobra.Command{
		Use: "ls [PREFIX] [flags]", Aliases: []string{"list"}, Short: "List locks and elections that are held",
		Long: lsHelp, Example: lsExamples,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && sessions {
				return usage("%s takes one prefix at most, and none with --sessions", cmd.CommandPath())
			}
			if follow && sessions {
				return usage("%s takes --watch or --sessions, not both", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix := ""
			if len(args) == 1 {
				prefix = args[0]
			}
			return a.withAdmin(cmd.Context(), func(adm *admin.Client) error {
				ctx, cancel := a.bounded(cmd.Context())
				defer cancel()
				if sessions {
					return a.listSessions(ctx, cmd.OutOrStdout(), adm)
				}
				all := []holdfast.Kind{holdfast.KindLock, holdfast.KindTree, holdfast.KindElection}
				if only != "" {
					all = []holdfast.Kind{holdfast.Kind(only)}
				}
				if follow {
					return a.watchList(cmd.Context(), cmd.OutOrStdout(), adm, prefix, all)
				}
				return a.list(ctx, cmd.OutOrStdout(), adm, prefix, all)
			})
		},
	}
	cmd.Flags().Var(&only, "kind", "list these only: lock, tree, semaphore, election or shard")
	cmd.Flags().BoolVar(&follow, "watch", false, "go on, and show each change")
	cmd.Flags().BoolVar(&sessions, "sessions", false, "list the processes that have a session")
	return cmd
}

type summaryJSON struct {
	Kind    holdfast.Kind `json:"kind"`
	Name    string        `json:"name"`
	Held    bool          `json:"held"`
	Waiting int           `json:"waiting"`
	Holder  entryJSON     `json:"holder"` // if not held, the first that waits
}

// list prints each name as it arrives: there may be a hundred thousand. The name comes last and is never shortened,
// because it is what the next command needs.
func (a *app) list(ctx context.Context, w io.Writer, adm *admin.Client, prefix string, kinds []holdfast.Kind) error {
	p := printer{w: w}
	const row = "%-9s %7v  %7s  %-*s  %s\n"
	width := wider(columns(w), 28)
	pad := max(28, width)
	header := sync.OnceFunc(func() { p.f(row, "KIND", "WAITING", "FOR", pad, "HOLDER", "NAME") })
	for _, kind := range kinds {
		for s, err := range adm.List(ctx, kind, prefix) {
			if err != nil {
				return err
			}
			if a.output == "json" {
				err = printJSON(w, summaryJSON{s.Kind, s.Name, s.Held, s.Waiting, asJSON(s.Holder)})
				if err != nil {
					return err
				}
				continue
			}
			header()
			held, holder := "-", "none yet: a lock delay runs"
			if s.Held {
				held, holder = age(heldSince(s.Holder), time.Now()), owner(s.Holder, width)
			}
			p.f(row, string(s.Kind), s.Waiting, held, pad, holder, clean(s.Name, 0))
			if p.err != nil {
				return p.err
			}
		}
	}
	if a.output == "table" {
		header()
	}
	return p.err
}

type sessionJSON struct {
	Owner    string `json:"owner,omitempty"`
	Host     string `json:"host,omitempty"`
	PID      int    `json:"pid,omitempty"`
	Lease    string `json:"lease"`
	Revision int64  `json:"revision"`
}

func (a *app) listSessions(ctx context.Context, w io.Writer, adm *admin.Client) error {
	p := printer{w: w}
	const row = "%-16s  %7v  %-*s  %s\n"
	width := wider(columns(w), 24)
	pad := max(24, width)
	header := sync.OnceFunc(func() { p.f(row, "LEASE", "PID", pad, "HOST", "OWNER") })
	for s, err := range adm.Sessions(ctx) {
		if err != nil {
			return err
		}
		e := admin.Entry{Owner: s.Owner, Host: s.Host, PID: s.PID, Lease: s.Lease}
		if a.output == "json" {
			if err := printJSON(w, sessionJSON{s.Owner, s.Host, s.PID, hex(e), s.Revision}); err != nil {
				return err
			}
			continue
		}
		header()
		p.f(row, hex(e), s.PID, pad, clean(s.Host, width), owner(e, 0))
	}
	if a.output == "table" {
		header()
	}
	return p.err
}
