// Package demo is what the examples share: flags, an etcd to talk to, and steps that are observed one after the other.
//
// An example fails, with exit code 1 and the name of the step, as soon as one step is not observed in time. So its
// output is not a claim but a record.
package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// TTL is the lease of every session in the examples: short, so that the wait for its expiry is, too. The default is 15
// s.
const TTL = 2 * time.Second

// A Demo is one run of an example.
type Demo struct {
	Endpoints []string         // of etcd
	Client    *clientv3.Client // of the parent process

	out      io.Writer
	colored  bool     // it is a terminal
	live     []string // lines that are shown below
	started  time.Time
	patience time.Duration
}

// A Step is something the example has to see happen.
type Step struct {
	Name    string
	Observe func(context.Context) error // returns once it was seen
}

// New returns a Demo for a test of what an example does with a client. It prints to out.
func New(cli *clientv3.Client, out io.Writer) *Demo {
	return &Demo{Client: cli, out: out, started: time.Now()}
}

// Main parses the flags and calls run with an etcd: the one of --endpoints, or else one in this process. The context
// ends on SIGINT and SIGTERM; run must undo what it did even then. If run fails, Main prints why and exits with code 1.
func Main(run func(context.Context, *Demo) error) {
	endpoints := flag.String("endpoints", "",
		"comma-separated `addresses` of an etcd cluster (default: an etcd in this process)")
	patience := flag.Duration("patience", 15*time.Second, "how long to wait for each step")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	d := &Demo{out: os.Stdout, colored: isTerminal(os.Stdout), started: time.Now(), patience: *patience}
	if *endpoints != "" {
		d.Endpoints = strings.Split(*endpoints, ",")
	}
	if err := d.withEtcd(ctx, run); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("interrupted: %w", err)
		}
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
}

func (d *Demo) withEtcd(ctx context.Context, run func(context.Context, *Demo) error) error {
	if d.Endpoints == nil {
		srv, err := etcdtest.New(etcdtest.Options{})
		if err != nil {
			return err
		}
		defer srv.Close()
		d.Endpoints = srv.Endpoints()
	}
	cli, err := session.NewClient(ctx, session.ClientConfig(d.Endpoints...))
	if err != nil {
		return err
	}
	defer cli.Close()
	d.Client = cli
	return run(ctx, d)
}

// Play observes the steps in order. It returns the error of the first that fails or is not observed in time.
func (d *Demo) Play(ctx context.Context, steps []Step) error {
	for i, step := range steps {
		if err := d.observe(ctx, step); err != nil {
			return fmt.Errorf("step %d of %d was not observed: %s: %w", i+1, len(steps), step.Name, err)
		}
	}
	d.Print(Plain, "")
	d.Print(Plain, "All %d steps were observed, in %.1f s.", len(steps), time.Since(d.started).Seconds())
	return nil
}

func (d *Demo) observe(ctx context.Context, step Step) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.patience, fmt.Errorf("waited for %v", d.patience))
	defer cancel()
	return step.Observe(ctx)
}

// WaitForKeys waits until exactly n keys are stored under prefix.
func (d *Demo) WaitForKeys(ctx context.Context, prefix string, n int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The watch exists before the first read, so no change is missed.
	for change := range d.Client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify()) {
		if err := change.Err(); err != nil {
			return err
		}
		resp, err := d.Client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return err
		}
		if resp.Count == n {
			return nil
		}
	}
	return errors.Join(context.Cause(ctx), fmt.Errorf("never saw %d keys under %q", n, prefix))
}
