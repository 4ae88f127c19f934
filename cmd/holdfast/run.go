package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/lastrun"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

const runHelp = `Acquire a lock, run a command, release the lock when the command has ended. Of all
processes that use the same name, one at a time runs its command; the others wait,
first in, first out.

What ends the command before it ends by itself:

    etcd is not reachable, briefly     nothing; the command goes on
    ... and for --term-after longer    SIGTERM to the command's process group
    ... until the lock is lost         SIGKILL, before the lease in etcd can end
    it is asked for (holdfast kick)    SIGTERM, SIGKILL after --drain; the lock is
                                       kept until the command has ended
    the lock is taken away, by hand    SIGKILL within 6 s
    or with holdfast kick --force
    --max-hold is over                 SIGTERM, SIGKILL after --drain; the lock is
                                       kept until the command has ended
    holdfast is killed (kill -9)       on Linux the kernel kills the command, but
                                       not what the command has started; elsewhere
                                       the command goes on
    holdfast alone is stopped (STOP)   nothing: the command goes on, the lock is lost

None of it reaches a command that changes its user: put sudo before holdfast, not
after it. "run" and "elect" need a Unix.

Only a store that compares HOLDFAST_TOKEN is safe in the cases of the last two rows;
tokens grow from each holder of a name to the next. With the default TTL of 15 s a
lock is suspended 6.75 s after the last confirmed renewal, SIGTERM comes after 9 s
and SIGKILL after 13.5 s. The next holder gets in after 15 s, or later.

The command has our stdin, stdout, stderr and environment, and in addition:

    HOLDFAST_NAME, HOLDFAST_NAMESPACE   the lock
    HOLDFAST_TOKEN                      the fencing token, in decimal
    HOLDFAST_KEY, HOLDFAST_LEASE        its entry and its lease (in hex) in etcd

SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are forwarded to the command's
process group; holdfast then waits for the command. While holdfast still waits for
the lock, the first four end it, and its place in the queue is given up. Under nohup
SIGHUP ends neither. On a terminal the command is in the foreground. Ctrl-Z stops
both; when they go on, the command is killed if the lock was lost meanwhile.

Machines start a cron job within seconds of each other, not at once. If the first one
is done before the second one starts, --try alone lets both run. With --min-hold the
name stays taken for that long after it was acquired, whatever becomes of the command:
choose more than the machines are apart, and at least 5 s less than the interval.
With --quiet nothing is printed, and so nothing mailed, where the job runs elsewhere;
with --skip-code 0 that is no failure either.

A machine that is down tells nothing. With --expect 26h a run that ends with 0 is
recorded in etcd, and that another one is due within that time. "holdfast show NAME"
has the last run; "holdfast show --overdue NAME" exits with 1 when the next one is
late, because the command fails, every machine skips it, or none is up.

What the command leaves running in the background when it ends goes on without the
lock. A "run" of the same lock directly inside the command is refused: it would wait
for its own end.

"holdfast help exit-codes" lists the exit codes.`

const runExamples = `  holdfast run billing/job-7 -- ./job --verbose
  holdfast run --try --skip-code 0 nightly -- ./backup.sh   # skip if it runs elsewhere
  holdfast run --try --quiet --min-hold 30m nightly -- /opt/backup.sh   # in a crontab
  holdfast run --try --quiet --min-hold 30m --expect 26h nightly -- /opt/backup.sh   # and recorded
  holdfast run --wait 1m deploy -- make deploy
  holdfast run --max-hold 1h report -- ./report
  holdfast run x -- sh -c 'exec ./job --token "$HOLDFAST_TOKEN"'
  holdfast run --at /app/locks/report -- ./report    # excludes etcdctl lock /app/locks/report`

// sessionFlags are those of run and elect.
type sessionFlags struct {
	ttl     time.Duration
	owner   string
	verbose bool
}

func (o *sessionFlags) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.DurationVar(&o.ttl, "ttl", session.DefaultTTL, "how `long` etcd keeps the lock of a machine that has vanished")
	f.StringVar(&o.owner, "owner", "", "what \"holdfast show\" tells of us (default HOST:PID)")
	f.BoolVar(&o.verbose, "verbose", false, "log what the session and the lock do")
}

// withSession calls fn with a session, and closes what that needs.
func (a *app) withSession(ctx context.Context, o *sessionFlags, fn func(*session.Session) error) error {
	return a.withClient(ctx, func(cli *clientv3.Client) error {
		level := slog.LevelWarn
		if o.verbose {
			level = slog.LevelDebug
		}
		first, cancel := a.bounded(ctx)
		defer cancel()
		sess, err := session.New(first, cli, session.Options{
			TTL: o.ttl, Namespace: a.namespace, Owner: o.owner, CloseTimeout: releaseTimeout,
			Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
		})
		if err != nil {
			return err
		}
		err = fn(sess)
		ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		if closed := sess.Close(ended); closed != nil && o.verbose {
			fmt.Fprintln(os.Stderr, "holdfast: the lease goes with its TTL:", closed)
		}
		return err
	})
}

// releaseTimeout bounds how long holdfast waits for etcd after its command has ended.
const releaseTimeout = 3 * time.Second

func newRun(a *app) *cobra.Command {
	var o struct {
		sessionFlags
		try, quiet bool

		wait   time.Duration
		min    time.Duration
		expect time.Duration
		at     bool

		skipCode int
	}
	s := &supervisor{signals: a.signals}
	cmd := &cobra.Command{
		Use: "run NAME [flags] -- COMMAND [ARG...]", Short: "Run a command while holding a lock",
		Long: runHelp, Example: runExamples, Args: nameAndCommand,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := s.prepare(args, o.ttl, o.at); err != nil {
				return err
			}
			switch waits := cmd.Flags().Changed("wait"); {
			case waits && o.try:
				return usage("--try does not wait, so --wait makes no sense with it")
			case waits && o.wait <= 0:
				return usage("--wait is %v: leave it out to wait without end; --try does not wait", o.wait)
			case o.min < 0:
				return usage("--min-hold is %v, which is negative", o.min)
			case o.skipCode < 0 || o.skipCode > 255:
				return usage("--skip-code is %d, not from 0 to 255", o.skipCode)
			case o.expect < 0:
				return usage("--expect is %v, which is negative", o.expect)
			case o.expect > 0 && o.at:
				return usage("--expect records the run at a key of its own, which etcd's clients below a prefix would wait for: " +
					"use a name without --at")
			}
			return a.withSession(cmd.Context(), &o.sessionFlags, func(sess *session.Session) error {
				mu, q := locker.NewMutex(sess, args[0]), layout.Named(a.namespace, holdfast.KindLock, args[0])
				if o.at {
					mu, q = locker.NewMutexAt(sess, args[0]), layout.At(a.namespace, holdfast.KindLock, args[0])
				}
				mu = mu.With(locker.Options{MinHold: o.min})
				if !o.try && a.runsUnder(cmd.Context(), sess.Client(), q.Entries) {
					return usage("the \"holdfast run\" that has started this one holds lock %s: they would wait for each other; "+
						"use another name, or --try", clean(args[0], 0))
				}
				lk, err := a.acquire(cmd.Context(), mu, o.try, o.wait)
				switch skipped := exitCode(err) == exitNotAcquired; {
				case skipped && o.quiet:
					return &exitError{code: o.skipCode}
				case skipped:
					return &exitError{o.skipCode, err}
				case err != nil:
					return err
				}
				s.sess = sess
				code, why, err := s.run(lk)
				if o.expect > 0 && code == 0 && why == nil && err == nil {
					record(lk, o.expect)
				}
				return finish(lk, code, why, err)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.try, "try", false, "do not wait: exit with 75 if the lock is held or waited for")
	f.DurationVar(&o.wait, "wait", 0, "how `long` to wait before exiting with 75 (default without end)")
	f.BoolVar(&o.quiet, "quiet", false, "say nothing where the lock is not acquired: cron mails what is said")
	f.IntVar(&o.skipCode, "skip-code", exitNotAcquired, "exit `code` where the lock is not acquired")
	f.DurationVar(&o.min, "min-hold", 0, "how `long` the name stays taken, also when the command has ended before")
	f.DurationVar(&o.expect, "expect", 0, "record a run that succeeds; the next one is due within this `time`")
	f.DurationVar(&s.maxHold, "max-hold", 0, "how `long` the command may run (default without end)")
	s.addFlags(cmd)
	o.addFlags(cmd)
	f.BoolVar(&o.at, "at", false, "NAME is the prefix of a lock of etcd's own clients, such as etcdctl lock")
	return cmd
}

// nameAndCommand checks the arguments of run and elect.
func nameAndCommand(cmd *cobra.Command, args []string) error {
	if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
		return usage("%s takes one NAME, then \"--\", then a command; see \"%[1]s --help\"", cmd.CommandPath())
	}
	return nil
}

// prepare checks what can be checked before etcd is asked. args are the name and the command.
func (s *supervisor) prepare(args []string, ttl time.Duration, at bool) (err error) {
	if !at {
		if err := locker.CheckName(args[0]); err != nil {
			return err
		}
	}
	trusted := ttl - max(ttl/10, 200*time.Millisecond)
	switch {
	case ttl <= 0: // session.Options takes 0 for the default
		return usage("--ttl is %v, not a whole number of seconds from 1s to 10m", ttl)
	case s.termAfter < 0, s.termAfter > 0 && s.termAfter >= trusted/2:
		return usage("--term-after is %v, and with --ttl %v a suspended lock is lost after %v", s.termAfter, ttl, trusted/2)
	case s.drain <= 0:
		return usage("--drain is %v; it must be positive", s.drain)
	case s.maxHold < 0:
		return usage("--max-hold is %v, which is negative", s.maxHold)
	}
	s.argv = args[1:]
	s.path, err = lookPath(args[1])
	return err
}

// runsUnder reports whether this process was started under the lock with these entries, and that is still held.
func (a *app) runsUnder(ctx context.Context, cli *clientv3.Client, entries string) bool {
	outer := os.Getenv("HOLDFAST_KEY")
	if !strings.HasPrefix(outer, entries) {
		return false
	}
	ctx, cancel := a.bounded(ctx)
	defer cancel()
	resp, err := cli.Get(ctx, outer, clientv3.WithCountOnly())
	return err == nil && resp.Count > 0 // else it was released: this process was left in the background
}

// acquire gets the lock, or says why not.
func (a *app) acquire(
	ctx context.Context, mu *locker.Mutex, try bool, wait time.Duration,
) (lk *locker.Lock, err error) {
	if try {
		asking, cancel := a.bounded(ctx)
		lk, err = mu.TryLock(asking)
		cancel()
	} else {
		waiting, cancel := ctx, func() {}
		if wait > 0 {
			waiting, cancel = context.WithTimeout(ctx, wait)
		}
		lk, err = mu.Lock(waiting)
		cancel()
	}
	var failed *view.AcquireError
	switch {
	case err == nil:
		return lk, nil
	case errors.Is(err, locker.ErrLocked),
		// Without a quorum the connection stands, too. So only what etcd tells of the place says that others are ahead.
		wait > 0 && errors.Is(err, context.DeadlineExceeded) && errors.As(err, &failed) && failed.Place.Known():
		return nil, &exitError{exitNotAcquired, err}
	default:
		return nil, err
	}
}

// record records in etcd that the command has run. That it cannot is no reason to say that the command has failed.
func record(lk *locker.Lock, expect time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	if err := lastrun.Record(ctx, lk, "", expect); err != nil {
		fmt.Fprintln(os.Stderr, "holdfast: the command has ended with 0, but its run may not be recorded:", err)
	}
}

// finish releases the lock and returns what holdfast ends with.
func finish(lk *locker.Lock, code int, why *stopped, err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	released := lk.Unlock(ctx)
	switch {
	case err != nil:
		return err
	case why != nil:
		return &exitError{why.code, fmt.Errorf("the command was stopped: %w", why.err)}
	case errors.Is(released, holdfast.ErrLost):
		return &exitError{exitLost, fmt.Errorf("the command ended with %d, perhaps without the lock: %w", code, released)}
	case released != nil:
		fmt.Fprintln(os.Stderr, "holdfast: the command has ended, but the lock may stay until its TTL is over:", released)
	}
	if code == 0 {
		return nil
	}
	return &exitError{code: code}
}
