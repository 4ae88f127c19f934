package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/session"
)

const checkHelp = `Check whether this etcd cluster is fit for locks and elections, seen from this machine
and with this user, and say what to do if it is not. It exits with 0 if it is, with 1 if
it is not, with 69 if no quorum answers: then it says which members do. It writes
nothing but a lease, which it revokes.

    members      each endpoint answers, has a leader, is no learner, and no grpc-proxy;
                 the endpoints are all members of the cluster
    quorum       the members answer a read together
    version      each server has the fixes that holdfast relies on
    roles        where auth is on, each server keeps users to their roles
    alarms       no alarm is raised (NOSPACE, CORRUPT)
    space        the database is below 80 % of its quota
    permission   what the user may do; with --for: it may do that: use a lock, tree,
                 semaphore, election or shard, be a member, observe elections, inspect
                 (ls, show, watch), admin (kick), ring (a kick is told at once), epoch;
                 --name limits that to one name (not for tree, nor for inspect and
                 admin without --at), --at says that it is a prefix of etcd's own
                 clients
    commit       how long a write takes until a quorum has it, of --samples
    renewal      how long a renewal of a lease and the read that proves it take
    TTL          whether --ttl suits these times
    clocks       what they matter

A warning does not make the cluster unfit.`

const checkExamples = `  holdfast check
  holdfast check --for lock --name billing/job-7 --user billing   # a role for one lock
  holdfast check --for lock --at --name /app/locks/report --user billing
  holdfast check --ttl 5s --samples 100
  holdfast check -o json | jq -r 'select(.result == "failed") | .advice'`

// finding is one line of a check, as jsonHelp describes it.
type finding struct {
	Check  string `json:"check"`
	Result string `json:"result"`
	Detail string `json:"detail"`
	Advice string `json:"advice,omitempty"`
}

// findings prints what is found, and remembers what it comes to.
type findings struct {
	print  func(finding)
	failed bool
	full   bool // it is said that the store is full
}

// checker looks at a cluster. Its methods report what they find.
type checker struct {
	findings

	cli       *clientv3.Client
	namespace string
	needs     []string
	name      string
	at        bool // name is a prefix
	ttl       time.Duration
	samples   int
	secure    bool

	cluster uint64   // that the first server with one belongs to
	leaking []string // what is said of servers that do not keep users to their roles
	auth    bool     // is known to be on

	anonymous bool // the login failed
}

func (f *findings) ok(check, format string, args ...any) {
	f.print(finding{Check: check, Result: "ok", Detail: fmt.Sprintf(format, args...)})
}

func (f *findings) info(check, detail string) {
	f.print(finding{Check: check, Result: "info", Detail: detail})
}

func (f *findings) warn(check, detail, advice string) {
	f.print(finding{check, "warning", detail, advice})
}

func (f *findings) fail(check, detail, advice string) {
	f.failed = true
	f.print(finding{check, "failed", detail, advice})
}

var errUnfit = errors.New("the cluster is not fit: see what failed above")

func newCheck(a *app) *cobra.Command {
	c := &checker{}
	cmd := &cobra.Command{
		Use: "check [flags]", Short: "Check whether this etcd cluster is fit", Long: checkHelp, Example: checkExamples,
		Args: exactly(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.validate(cmd.Flags().Changed("for")); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			p := printer{w: out}
			c.print = func(f finding) { p.finding(f, a.output == "json") }
			err := c.start(cmd.Context(), a)
			switch {
			case c.cli == nil: // nothing was asked
				return err
			case cmd.Context().Err() != nil: // a signal: what was not answered says nothing of the cluster
				return context.Cause(cmd.Context())
			case a.output == "json":
				p.err = errors.Join(p.err, printJSON(out, map[string]bool{"fit": !c.failed}))
			case !c.failed:
				p.f("fit\n")
			}
			if err == nil && c.failed {
				err = &exitError{exitOther, errUnfit}
			}
			return errors.Join(err, p.err)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&c.needs, "for", nil, "what the user needs to do (default: find out what it may)")
	f.StringVar(&c.name, "name", "", "the only name of a lock, semaphore, election, shards or group that the user needs")
	f.BoolVar(&c.at, "at", false, "--name is the prefix of a lock or election of etcd's own clients")
	f.DurationVar(&c.ttl, "ttl", session.DefaultTTL, "the TTL that sessions will have")
	f.IntVar(&c.samples, "samples", 10, "how often to measure")
	return cmd
}

func (c *checker) validate(chosen bool) error {
	if c.at && (len(c.needs) == 0 || c.name == "") {
		return usage("--at takes --name with the prefix, and --for with some of %s", strings.Join(purposesAt, ", "))
	}
	for _, need := range c.needs {
		if c.at && !slices.Contains(purposesAt, need) {
			return usage("--for has %q, which is none of %s, which --at takes", need, strings.Join(purposesAt, ", "))
		}
		if permissions[need] == nil {
			return usage("--for has %q, which is none of %s", need, strings.Join(purposes, ", "))
		}
		if !c.at && c.name != "" && slices.Contains(purposesAll, need) {
			return usage("--for has %q, which takes permissions for all names: check it without --name", need)
		}
	}
	if chosen && len(c.needs) == 0 {
		return usage("--for is empty: give some of %s", strings.Join(purposes, ", "))
	}
	if c.samples < 1 || c.ttl < time.Second {
		return usage("--samples must be at least 1, --ttl at least 1s")
	}
	return nil
}

// start makes all checks. Without a quorum no login succeeds: then each member is asked without one.
func (c *checker) start(ctx context.Context, a *app) error {
	err := a.withClient(ctx, func(cli *clientv3.Client) error {
		c.cli, c.namespace = cli, a.namespace
		c.secure = a.encrypts(cli.Endpoints()[0])
		return c.run(ctx, a.commandTimeout)
	})
	if c.cli != nil || a.user == "" || exitCode(err) != exitUnavailable {
		return err
	}
	anonymous := *a
	anonymous.user, anonymous.password = "", ""
	_ = anonymous.withClient(ctx, func(cli *clientv3.Client) error { // the login's error is returned
		c.cli, c.namespace, c.anonymous = cli, a.namespace, true
		c.ask(ctx, a.commandTimeout)
		return nil
	})
	c.noQuorum(err)
	return err
}

// run makes all checks. An error means that no quorum answers.
func (c *checker) run(ctx context.Context, timeout time.Duration) error {
	answered := c.ask(ctx, timeout)
	if err := c.reach(ctx, timeout); err != nil {
		c.noQuorum(err)
		return err
	}
	c.members(ctx, timeout, answered)
	c.permissions(ctx, timeout)
	c.times(ctx, timeout)
	c.info("clocks", "The time of day may differ from machine to machine: none is compared with another. Only how fast "+
		"they run matters: a clock of this machine that is slower than etcd's by more than a tenth within a TTL would be "+
		"trusted too long (session.Options.DriftMargin). Times that \"holdfast show\" tells are each machine's own.")
	return nil
}

// reach returns why no quorum answers, if it does not.
func (c *checker) reach(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := need{key: names.EpochKey(c.namespace), permission: "read"}.probe(ctx, c.cli)
	if exitCode(err) == exitUnavailable {
		return err
	}
	return nil
}

func (c *checker) noQuorum(err error) {
	c.fail("quorum", fmt.Sprintf("no quorum answers: %v", err),
		"More than half of the members must run and reach each other: start those that do not answer, or find out "+
			"why this machine does not reach them. Until then nothing can be locked, and what is held is lost within its TTL. "+
			"Nothing else was checked.")
}

// finding prints one, wrapped to 80 columns.
func (p *printer) finding(f finding, asJSON bool) {
	if asJSON {
		if p.err == nil {
			p.err = printJSON(p.w, f)
		}
		return
	}
	lead := fmt.Sprintf("%-8s %-11s ", f.Result, f.Check)
	for _, line := range wrap(f.Detail, 80-len(lead)) {
		p.f("%s%s\n", lead, line)
		lead = strings.Repeat(" ", len(lead))
	}
	if f.Advice != "" {
		for i, line := range wrap(f.Advice, 80-len(lead)-3) {
			arrow := "-> "
			if i > 0 {
				arrow = "   "
			}
			p.f("%s%s%s\n", lead, arrow, line)
		}
	}
}

// wrap breaks text at spaces into lines of at most width characters, where it can.
func wrap(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

// spread is the middle and the largest of some times.
func spread(times []time.Duration) (median, worst time.Duration) {
	slices.Sort(times)
	return times[len(times)/2], times[len(times)-1]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond)) }
