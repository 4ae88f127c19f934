package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/admin"
)

const drainHelp = `Take a member of shards (Go package shard) out of service: it goes on running, and its
shards are handed over to the others in order. So are those of a later process of its
name. It stands until "holdfast shards undrain", or until the member has been gone for
an hour (and a quarter at most); "holdfast show NAME --kind shard" lists it. Without
another member in service the shards have no owner.

A member can take itself out of service, too (OutOfService), which undrain does not end.
The role needs what "shard-operators" of docs/client.md has.`

const drainExamples = `  holdfast shards drain orders --member pod-3
  holdfast shards undrain orders --member pod-3`

const moveHelp = `Pin a shard to a member for a while (Go package shard): its owner hands it over in order,
and the member has it beside its own part until the time is over. Members ignore the pin
while that member is absent or out of service, or has its MaxShards. A second pin of one
shard replaces the first. To end one early, replace it: --for 1s.

The role needs what "shard-operators" of docs/client.md has.`

const moveExamples = `  holdfast shards move orders 7 --to pod-3
  holdfast shards move orders 7 --to pod-3 --for 12h`

func newDrain(a *app, back bool) *cobra.Command {
	cmd := &cobra.Command{
		Use: "drain NAME --member MEMBER", Short: "Have a member hand its shards over while it runs",
		Long: drainHelp, Example: drainExamples, DisableFlagsInUseLine: true, Args: exactly(1, "a NAME"),
	}
	if back {
		cmd.Use, cmd.Short = "undrain NAME --member MEMBER", "Put a drained member back into service"
	}
	member := cmd.Flags().String("member", "", "the member's `name`, as show prints it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *member == "" {
			return usage("--member is missing: name one that \"holdfast show %s --kind shard\" lists", clean(args[0], 0))
		}
		return a.steer(cmd, func(ctx context.Context, adm *admin.Client, w io.Writer) error {
			var was bool
			var err error
			if back {
				was, err = adm.UndrainMember(ctx, args[0], *member)
			} else {
				err = adm.DrainMember(ctx, args[0], *member)
			}
			if err != nil {
				return err
			}
			if a.output == "json" {
				return printJSON(w, drainJSON{args[0], *member, !back, was})
			}
			what := "is drained: its shards are handed over"
			switch {
			case back && was:
				what = "is back in service"
			case back:
				what = "was not drained"
			}
			_, err = fmt.Fprintf(w, "member %s of shards %s %s\n", clean(*member, 0), clean(args[0], 0), what)
			return err
		})
	}
	return cmd
}

func newMove(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "move NAME SHARD --to MEMBER [--for TIME]", Short: "Pin a shard to a member for a while",
		Long: moveHelp, Example: moveExamples, DisableFlagsInUseLine: true, Args: exactly(2, "a NAME and a shard"),
	}
	to := cmd.Flags().String("to", "", "the member's `name`, as show prints it")
	long := cmd.Flags().Duration("for", admin.DefaultPin, "how `long`, 1s to 24h")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		index, err := strconv.Atoi(args[1])
		if err != nil {
			return usage("the shard is %q, not a number", args[1])
		}
		switch {
		case *to == "":
			return usage("--to is missing: name a member that \"holdfast show %s --kind shard\" lists", clean(args[0], 0))
		case *long <= 0:
			return usage("--for is %v, not 1s to 24h", *long)
		}
		return a.steer(cmd, func(ctx context.Context, adm *admin.Client, w io.Writer) error {
			p, err := adm.MoveShard(ctx, args[0], index, *to, *long)
			switch {
			case err != nil:
				return err
			case a.output == "json":
				return printJSON(w, moveToJSON{args[0], index, *to, p.Until.UTC(), p.Replaced})
			}
			replaced := ""
			if p.Replaced != "" {
				replaced = ", which replaces its pin to " + clean(p.Replaced, 0)
			}
			_, err = fmt.Fprintf(w, "shard %d of %s is pinned to %s until %s%s\n", index, clean(args[0], 0), clean(*to, 0),
				exact(p.Until), replaced)
			return err
		})
	}
	return cmd
}

// steer runs what changes who shards are assigned to.
func (a *app) steer(cmd *cobra.Command, do func(context.Context, *admin.Client, io.Writer) error) error {
	return a.withClient(cmd.Context(), func(cli *clientv3.Client) error {
		ctx, cancel := a.bounded(cmd.Context())
		defer cancel()
		if err := do(ctx, a.admin(cli), cmd.OutOrStdout()); err != nil {
			return withConnection(cli, err)
		}
		return nil
	})
}

type drainJSON struct {
	Name    string `json:"name"`
	Member  string `json:"member"`
	Drained bool   `json:"drained"`
	Was     bool   `json:"was_drained,omitempty"` // of undrain
}

type moveToJSON struct {
	Name     string    `json:"name"`
	Shard    int       `json:"shard"`
	Member   string    `json:"member"`
	Until    time.Time `json:"until"`
	Replaced string    `json:"replaced,omitempty"`
}
