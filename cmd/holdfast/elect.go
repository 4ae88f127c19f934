package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/session"
)

const electHelp = `Run a command while this process leads an election: for services of which one
instance at a time may be active, and that know nothing of leader election. Start
"holdfast elect" on each machine; one of them runs the command, the others wait to
take over.

A term ends when its lease or its entry in etcd is lost. The command is then stopped
as with "run" (see "holdfast help run" for the table), and holdfast campaigns again:
in its next term it starts the command again. With --once it exits with 79 instead.

When the command ends by itself, for whatever reason, holdfast resigns and exits with
the command's exit code. So another machine takes over at once, and what supervises
holdfast (systemd, Kubernetes) decides about a restart as it would for the command.

SIGTERM and the other signals are forwarded to the command, and while holdfast waits
they end it. Either way the next candidate leads without waiting for the TTL. After SIGTERM
or SIGINT holdfast does not start the command again, also if the term has ended meanwhile.

The command has our stdin, stdout, stderr and environment, and in addition:

    HOLDFAST_NAME, HOLDFAST_NAMESPACE   the election
    HOLDFAST_VALUE                      what others see of the leader: --value
    HOLDFAST_TOKEN                      the fencing token of the term, in decimal
    HOLDFAST_KEY, HOLDFAST_LEASE        its entry and its lease (in hex) in etcd

Who leads: "holdfast show --kind election NAME", "holdfast watch --kind election NAME". From Go,
election.NewReader tells the leader's value.`

const electExamples = `  holdfast elect scheduler -- ./scheduler --config prod.yaml
  holdfast elect --value 10.0.0.7:8080 api -- ./serve --listen 10.0.0.7:8080
  holdfast elect --ttl 5s --drain 30s worker -- ./worker
  holdfast show --kind election scheduler -o json | jq -r '.entries[0].value'

A systemd unit:

  [Service]
  Environment=ETCDCTL_ENDPOINTS=etcd-0:2379,etcd-1:2379,etcd-2:2379
  ExecStart=/usr/local/bin/holdfast elect scheduler -- /usr/local/bin/scheduler
  Restart=always`

func newElect(a *app) *cobra.Command {
	var o struct {
		sessionFlags
		value string
		once  bool
		at    bool
	}
	s := &supervisor{signals: a.signals}
	cmd := &cobra.Command{
		Use: "elect NAME [flags] -- COMMAND [ARG...]", Short: "Run a command while leading an election",
		Long: electHelp, Example: electExamples, Args: nameAndCommand,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.prepare(args, o.ttl, o.at); err != nil {
				return err
			}
			if o.value == "" {
				o.value = thisProcess()
			}
			return a.withSession(cmd.Context(), &o.sessionFlags, func(sess *session.Session) error {
				el := election.New(sess, args[0])
				if o.at {
					el = election.NewAt(sess, args[0])
				}
				s.sess = sess
				needs := entriesOf(a.namespace, holdfast.KindElection, args[0])
				if o.at {
					needs = []need{{args[0] + "/", true, "readwrite"}}
				}
				if err := a.refused(cmd.Context(), sess.Client(), needs); err != nil {
					return fmt.Errorf("elect %s: %w", clean(args[0], 0), err)
				}
				return s.elect(cmd.Context(), el, o.value, o.once)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.value, "value", "", "what others see of the leader, such as its address (default HOST:PID)")
	f.BoolVar(&o.once, "once", false, "lead one term only: exit with 79 when it is lost")
	s.addFlags(cmd)
	o.addFlags(cmd)
	f.BoolVar(&o.at, "at", false, "NAME is the prefix of an election of etcd's own clients, such as etcdctl elect")
	return cmd
}

// refused returns etcd's error if the user lacks one of these permissions: election.Election.Run would try for ever.
func (a *app) refused(ctx context.Context, cli *clientv3.Client, needs []need) error {
	ctx, cancel := a.bounded(ctx)
	defer cancel()
	for _, n := range needs {
		if _, err := n.probe(ctx, cli); exitCode(err) == exitDenied {
			return fmt.Errorf("%s %s: %w", n.permission, n.key, err)
		}
	}
	return nil
}

// elect leads term after term, until the command ends by itself or a signal comes.
func (s *supervisor) elect(ctx context.Context, el *election.Election, value string, once bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var final error
	err := el.With(election.Options{
		Value: value,
		// The work stops by itself when its term ends: supervisor.run waits for SIGKILL to have taken effect.
		DrainTimeout: 24 * time.Hour,
	}).Run(ctx, func(_ context.Context, term *election.Term) error {
		code, why, err := s.run(term, "HOLDFAST_VALUE="+value)
		switch {
		case err != nil:
			final = err
		case why != nil && !once && !s.ending:
			s.say(term, "the term is over: %v; campaigning again", why.err)
			return nil
		case why != nil:
			final = &exitError{why.code, fmt.Errorf("the command was stopped: %w", why.err)}
		default:
			final = &exitError{code: code}
		}
		cancel()
		return nil
	})
	var exit *exitError
	switch {
	case errors.As(final, &exit) && exit.code == 0:
		return nil
	case final != nil:
		return final
	default:
		return err
	}
}

func thisProcess() string {
	host, _ := os.Hostname() // unknown is as good as empty here
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}
