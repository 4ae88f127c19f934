//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/child"
)

// The exit codes.
const (
	fine     = 0
	violated = 1
	unusable = 2
)

func main() {
	child.Main(runWorker)
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
}

// command runs a campaign, or judges the record of a round again. It returns the exit code.
func command(args []string, out, errOut io.Writer) (code int) {
	flags := flag.NewFlagSet("campaign", flag.ContinueOnError)
	flags.SetOutput(errOut)
	o := options{progress: out}
	flags.DurationVar(&o.duration, "duration", 2*time.Minute, "for how long rounds begin")
	flags.DurationVar(&o.round, "round", 40*time.Second, "how long the faults of a round last")
	flags.Uint64Var(&o.seed, "seed", 1, "of the faults, which come as fast as the machine lets them")
	flags.IntVar(&o.workers, "workers", 5, "how many processes acquire locks, at least 2")
	flags.IntVar(&o.members, "members", defaultMembers, "how many members the cluster has: 1, 3 or 5")
	flags.BoolVar(&o.auth, "auth", false, "members ask for users, whose role is withdrawn and whose tokens become invalid")
	flags.BoolVar(&o.fsync, "fsync", false, "members wait for the disk with each commit; it is recorded")
	flags.StringVar(&o.etcd, "etcd", "", "`program` of the members, built in tests/compat/versions, for an older etcd")
	flags.StringVar(&o.out, "out", "campaign-records", "`directory` for the record of each round that broke a promise")
	flags.StringVar(&o.summary, "summary", "", "`file` for the summary as JSON, written anew after each round")
	flags.StringVar(&o.note, "note", "", "a `text` for the summary, as what else the machine did")
	endpoints := flags.String("endpoints", "", "run on the etcd at these `addresses`, without faults of its members")
	flags.StringVar(&o.foreign.namespace, "namespace", "", "the `prefix` of all keys there, at which others have none")
	sure := flags.Bool("sure", false, "write to the etcd at -endpoints, and delete keys below -namespace")
	again := flags.String("judge", "", "judge the record of a round in this `file` again, and do nothing else")
	lockSets := flags.Bool("sets", false, "run Jepsen's workload for locks instead: sets that are changed under a lock")
	records := flags.String("evidence", "", "print the tables of docs/evidence.md, of the summaries in this `directory`")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return fine
	case err != nil:
		return unusable
	case flags.NArg() > 0:
		fmt.Fprintf(errOut, "campaign: unknown argument %q\n", flags.Arg(0))
		return unusable
	case *again != "":
		return judgeAgain(*again, out, errOut)
	case *records != "":
		tables, err := evidence(*records)
		if err != nil {
			fmt.Fprintln(errOut, "campaign:", err)
			return unusable
		}
		fmt.Fprint(out, tables)
		old, err := older(*records)
		if err != nil {
			fmt.Fprintln(errOut, "campaign:", err)
			return unusable
		}
		for _, line := range old {
			fmt.Fprintln(out, line)
		}
		return fine
	case o.workers < 2:
		fmt.Fprintln(errOut, "campaign: -workers must be at least 2, since each of two lanes of faults has its own")
		return unusable
	case o.members != 1 && o.members != 3 && o.members != 5:
		fmt.Fprintln(errOut, "campaign: -members must be 1, 3 or 5")
		return unusable
	case *endpoints != "" && (o.foreign.namespace == "" || !*sure):
		fmt.Fprintln(errOut, "campaign: on an etcd that you name it needs a -namespace, below which it writes and deletes "+
			"keys, and -sure; nothing was sent")
		return unusable
	case o.round < time.Second || o.duration <= 0:
		fmt.Fprintln(errOut, "campaign: -round must be at least 1s, and -duration above 0")
		return unusable
	}
	if *endpoints != "" {
		o.foreign.endpoints = strings.Split(*endpoints, ",")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *lockSets {
		return commandSets(ctx, o, out, errOut)
	}
	if o.summary != "" && commit() == unknownCommit {
		fmt.Fprintln(errOut, "campaign: a -summary names the commit: run it in the repository; nothing was started")
		return unusable
	}
	s, err := run(ctx, o)
	fmt.Fprintf(out, "\n%v", s)
	switch {
	case len(s.Violations) > 0:
		return violated
	case err != nil:
		fmt.Fprintln(errOut, "campaign:", err)
		return unusable
	}
	return fine
}

// judgeAgain prints what is wrong with a record.
func judgeAgain(file string, out, errOut io.Writer) (code int) {
	rec, err := load(file)
	if err != nil {
		fmt.Fprintln(errOut, "campaign:", err)
		return unusable
	}
	rec.judge()
	failures := rec.violations
	for _, v := range failures {
		fmt.Fprintln(out, v)
	}
	for _, v := range rec.ofMachine {
		fmt.Fprintln(out, "of the machine:", v)
	}
	fmt.Fprintf(out, "%d holds, %d changes of the store, %d faults: %d violations\n", len(rec.Record.Holds),
		len(rec.Record.Changes), len(rec.Faults), len(failures))
	if len(failures) > 0 {
		return violated
	}
	return fine
}
