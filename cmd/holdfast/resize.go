package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/internal/names"
)

const resizeHelp = `Change how many shards of a name there are (Go package shard). With another number keys
are in other shards, so members of two numbers must not run at the same time:

    1. stop all processes that run the shards;
    2. holdfast shards resize NAME N: it refuses, with exit code 75, while members run or
       shards are owned, and says whose; a process that has died counts until its lease
       ends. Then resize waits 8 s (its LockDelay and 6 s), as it may not know of that;
    3. start the processes with the new number. One with the old number ends with an
       error that says both.

It prints how many there were. The role needs what "shards" of docs/client.md has.`

const resizeExamples = `  holdfast show --kind shard orders
  holdfast shards resize orders 128`

func newShards(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "shards resize|drain|undrain|move NAME … [flags]", Short: "Change how many shards there are, and who has them",
		Long:    "Change how many shards of a name there are, take members out of service, and move shards.",
		Example: strings.Join([]string{resizeExamples, drainExamples, moveExamples}, "\n"),
		Args:    exactly(0, `"resize", "drain", "undrain" or "move", and a NAME`),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDrain(a, false), newDrain(a, true), newMove(a), &cobra.Command{
		Use: "resize NAME N", Short: "Change how many shards there are, while no member runs",
		Long: resizeHelp, Example: resizeExamples, DisableFlagsInUseLine: true,
		Args: exactly(2, "a NAME and a number"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[1])
			if err != nil {
				return usage("the number of shards is %q, not a number", args[1])
			}
			return a.withClient(cmd.Context(), func(cli *clientv3.Client) error {
				asking, cancel := a.bounded(cmd.Context())
				defer cancel()
				if _, err := (need{key: names.EpochKey(a.namespace), permission: "read"}).probe(asking, cli); err != nil {
					return withConnection(cli, err)
				}
				ctx, cancel := context.WithTimeout(cmd.Context(), a.commandTimeout+longestUntold)
				defer cancel()
				before, err := a.admin(cli).ResizeShards(ctx, args[0], n)
				var running *admin.MembersError
				switch {
				case errors.As(err, &running):
					return &exitError{exitNotAcquired, err}
				case err != nil:
					return withConnection(cli, err)
				case a.output == "json":
					return printJSON(cmd.OutOrStdout(), resizeJSON{args[0], before, n})
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "there are %d shards %s now, before %d\n", n, clean(args[0], 0), before)
				return err
			})
		},
	})
	return cmd
}

// longestUntold is how long ResizeShards waits, at most, for an owner that went without a release: the longest
// LockDelay and 6 s.
const longestUntold = 66 * time.Second

type resizeJSON struct {
	Name   string `json:"name"`
	Before int    `json:"before"`
	Shards int    `json:"shards"`
}
