package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/fencing/etcdfence"
)

const epochHelp = `Show or raise the epoch of the namespace, which stands above all fencing tokens.

etcd's revisions order the tokens. When etcd was restored from a backup, its revisions
begin again at an older one, so that new holders get tokens that guards have seen
already, and refuse. Then raise the epoch: restore etcd, run "holdfast epoch bump N"
with the epoch that the guard's error asks for (as a rule one more than before), and
only then let clients in. An etcd restored with "etcdutl snapshot restore
--bump-revision N --mark-compacted" needs no bump, if N is larger than the number of
revisions since the snapshot, and no marks were restored along with it.

A bump never lowers the epoch, so it may be repeated. Holders keep their tokens; once a
guard has seen a token of the new epoch, it refuses those of the old one. The role
needs to write NAMESPACE/epoch.`

const epochExamples = `  holdfast epoch
  holdfast epoch bump 1
  holdfast epoch -o json | jq .epoch`

func newEpoch(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "epoch [bump N] [flags]", Short: "Show or raise the epoch of the fencing tokens",
		Long: epochHelp, Example: epochExamples,
		Args: exactly(0, `no argument, or "bump N"`),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(cli *clientv3.Client) error {
				ctx, cancel := a.bounded(cmd.Context())
				defer cancel()
				epoch, err := etcdfence.Epoch(ctx, cli, a.namespace)
				return a.printEpoch(cmd.OutOrStdout(), epoch, withConnection(cli, err))
			})
		},
	}
	cmd.AddCommand(&cobra.Command{
		Use: "bump N", Short: "Raise the epoch to N, unless it is at least that",
		Long: epochHelp, Example: epochExamples, DisableFlagsInUseLine: true,
		Args: exactly(1, "one number"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil {
				return usage("the epoch is %q, not a number", args[0])
			}
			return a.withClient(cmd.Context(), func(cli *clientv3.Client) error {
				ctx, cancel := a.bounded(cmd.Context())
				defer cancel()
				epoch, err := etcdfence.BumpEpoch(ctx, cli, a.namespace, n, nil)
				return a.printEpoch(cmd.OutOrStdout(), epoch, withConnection(cli, err))
			})
		},
	})
	return cmd
}

type epochJSON struct {
	Namespace string `json:"namespace"`
	Epoch     int64  `json:"epoch"`
}

func (a *app) printEpoch(w io.Writer, epoch int64, err error) error {
	switch {
	case err != nil:
		return err
	case a.output == "json":
		return printJSON(w, epochJSON{a.namespace, epoch})
	default:
		_, err = fmt.Fprintf(w, "the epoch of namespace %s is %d\n", clean(a.namespace, 0), epoch)
		return err
	}
}
