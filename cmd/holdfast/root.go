package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/session"
)

const rootHelp = `holdfast runs commands under locks and elections in etcd, and shows who holds
and who waits. Locks and elections are those of the Go packages
github.com/holdfast-go/holdfast/locker and election.

    holdfast ls                            every lock that is held
    holdfast show billing/job-7            who holds it, who waits, since when
    holdfast run billing/job-7 -- ./job    run ./job while holding the lock
    holdfast elect scheduler -- ./serve    run ./serve while leading
    holdfast check                         whether this etcd is fit, and what to do

"holdfast help COMMAND" is the manual of a command.`

// usageTemplate is cobra's, without the flags of the connection in each command's help: they have a topic.
const usageTemplate = `Usage:
  {{if .Runnable}}{{.UseLine}}{{else}}{{.CommandPath}} COMMAND{{end}}
{{- if .HasExample}}

Examples:
{{.Example}}{{end}}
{{- if not .HasParent}}{{$all := .Commands}}{{range $group := .Groups}}

{{$group.Title}}{{range $all}}{{if eq .GroupID $group.ID}}
  {{rpad .Name .NamePadding}}  {{.Short}}{{end}}{{end}}{{end}}

More:{{range $all}}{{if .IsAdditionalHelpTopicCommand}}
  help {{rpad .Name 11}}  {{.Short}}{{end}}{{end}}{{end}}
{{- if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}
{{- if .HasAvailableInheritedFlags}}

Flags of every command: -o table|json, --namespace, and those of the connection,
with their environment variables: "holdfast help connection".{{end}}
`

// app is what the commands share.
type app struct {
	connection
	signals *signals
	output  string
}

func newRoot(sig *signals) *cobra.Command {
	a := &app{signals: sig}
	root := &cobra.Command{
		Use: "holdfast COMMAND", Short: "Locks and elections in etcd", Long: rootHelp,
		Version:       version(),
		SilenceErrors: true, SilenceUsage: true,
		Args:              knownCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.prepare(cmd) },
	}
	root.SetUsageTemplate(usageTemplate)
	root.CompletionOptions.HiddenDefaultCmd = true
	a.addFlags(root.PersistentFlags())
	root.PersistentFlags().StringVarP(&a.output, "output", "o", "table", "`format` of the output: table or json")
	root.PersistentFlags().SortFlags = false
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage("%w\nsee \"%s --help\"", err, cmd.CommandPath())
	})
	root.AddGroup(&cobra.Group{ID: "see", Title: "See who holds:"}, &cobra.Group{ID: "act", Title: "Run a command:"},
		&cobra.Group{ID: "operate", Title: "Operate:"})
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			c.Flags().SortFlags = false
			c.DisableFlagsInUseLine = true
			root.AddCommand(c)
		}
	}
	add("see", newLs(a), newShow(a), newWatch(a), newExplain(a))
	add("act", newRun(a), newElect(a))
	add("operate", newKick(a), newCheck(a), newEpoch(a), newShards(a))
	topics := map[string][2]string{
		"connection": {"flags and variables of the connection to etcd", connectionHelp},
		"exit-codes": {"what an exit code means", exitHelp},
		"json":       {"what -o json prints", jsonHelp},
	}
	for _, name := range []string{"connection", "exit-codes", "json"} {
		root.AddCommand(&cobra.Command{Use: name, Short: topics[name][0], Long: topics[name][1]})
	}
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args = func(_ *cobra.Command, args []string) error {
			found, rest, err := root.Find(args)
			if err != nil {
				return usage("%w", err)
			}
			return knownCommand(found, rest)
		}
	}
	return root
}

// knownCommand refuses what is no command of cmd.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	hint := "see \"holdfast help\""
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		hint = "did you mean " + strings.Join(similar, " or ") + "?"
	}
	return usage("unknown command %q: %s", args[0], hint)
}

// version is that of the module, as "go install" has recorded it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

// prepare completes the flags, before any command runs.
func (a *app) prepare(cmd *cobra.Command) error {
	if err := a.fromEnvironment(cmd.Flags()); err != nil {
		return err
	}
	if !slices.Contains([]string{"table", "json"}, a.output) {
		return usage("-o is %q, neither table nor json", a.output)
	}
	if a.namespace == "" {
		a.namespace = session.DefaultNamespace
	}
	if a.commandTimeout <= 0 {
		return usage("--command-timeout is %v: nothing can be asked in that time", a.commandTimeout)
	}
	return nil
}

// exactly is cobra.ExactArgs with our exit code.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usage("%s takes %s, and has %d arguments; see \"%[1]s --help\"", cmd.CommandPath(), what, len(args))
		}
		return nil
	}
}

// withAdmin calls fn with a client of admin, and closes what that needs.
func (a *app) withAdmin(ctx context.Context, fn func(*admin.Client) error) error {
	return a.withClient(ctx, func(cli *clientv3.Client) error { return fn(a.admin(cli)) })
}

func (a *app) admin(cli *clientv3.Client) *admin.Client {
	return admin.New(cli, admin.Options{Namespace: a.namespace, Owner: operator()})
}

func (a *app) withClient(ctx context.Context, fn func(*clientv3.Client) error) error {
	cli, err := a.dial(ctx)
	if err != nil {
		return err
	}
	return errors.Join(fn(cli), ignoreCanceled(cli.Close()))
}

// ignoreCanceled drops the error that closing a client returns by design.
func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// bounded is ctx for a command that asks once.
func (a *app) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.commandTimeout)
}

// kindFlag is the value of a --kind.
type kindFlag holdfast.Kind

// Set implements pflag.Value.
func (k *kindFlag) Set(text string) error {
	if !slices.Contains(layout.Kinds, holdfast.Kind(text)) {
		return fmt.Errorf("must be one of %q", layout.Kinds)
	}
	*k = kindFlag(text)
	return nil
}

func (k *kindFlag) String() string { return string(*k) }

// Type is what the help calls the value.
func (k *kindFlag) Type() string { return "kind" }

// noun is what a kind is called in sentences.
func (k kindFlag) noun() string {
	if holdfast.Kind(k) == holdfast.KindTree {
		return "tree lock"
	}
	return string(k)
}

// place is a name of the command line, or a prefix of etcd's own clients.
type place struct {
	name string
	kind kindFlag
	at   bool
}

func (p *place) addFlags(cmd *cobra.Command, kinds string) {
	p.addKind(cmd, "what NAME is: "+kinds)
	cmd.Flags().BoolVar(&p.at, "at", false,
		"NAME is the prefix of a lock or election of etcd's own clients, such as etcdctl lock")
}

func (p *place) addKind(cmd *cobra.Command, help string) {
	p.kind = kindFlag(holdfast.KindLock)
	cmd.Flags().Var(&p.kind, "kind", help)
}

// queue says where the entries are.
func (p *place) queue(namespace string) layout.Keyspace {
	if p.at {
		return layout.At(namespace, holdfast.Kind(p.kind), p.name)
	}
	return layout.Named(namespace, holdfast.Kind(p.kind), p.name)
}

func (p *place) show(ctx context.Context, adm *admin.Client) (admin.Queue, error) {
	if p.of() == "" {
		return admin.Queue{}, usage("--at is for locks and elections: etcd's own clients have no %s", p.kind.noun())
	}
	return adm.Show(ctx, p.of(), p.name)
}

// of is the kind to ask for, "" if there is none.
func (p *place) of() holdfast.Kind {
	if !p.at {
		return holdfast.Kind(p.kind)
	}
	return foreign[holdfast.Kind(p.kind)]
}

// foreign has the kinds that etcd's own clients have as well.
var foreign = map[holdfast.Kind]holdfast.Kind{holdfast.KindLock: admin.LockAt, holdfast.KindElection: admin.ElectionAt}

// printer writes and keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) f(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}
