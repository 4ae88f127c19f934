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
	"time"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// plan is what is measured.
type plan struct {
	processes int
	locks     int           // held by each process
	settle    time.Duration // passes before each row: what a new lock costs once is no part of it
	window    time.Duration // each row is measured for that long
	polling   bool          // sessions cannot watch enough members, and ask twice a second about what they hold
	upstream  bool          // sessions and locks are those of etcd's own package
	busy      int           // processes that lock and unlock in a loop; 0: that row is left out
	session   session.Options
}

func main() {
	var p plan
	flag.IntVar(&p.processes, "processes", 100, "`number` of processes, each with a session")
	flag.IntVar(&p.locks, "locks", 1, "`number` of locks that each of them holds; 0: one row, of sessions alone")
	flag.DurationVar(&p.window, "for", 30*time.Second, "how `long` each row is measured")
	flag.DurationVar(&p.settle, "settle", 5*time.Second, "how `long` to wait before each row")
	flag.IntVar(&p.busy, "busy", 0, "`number` of processes that at last lock and unlock in a loop")
	flag.BoolVar(&p.polling, "polling", false, "sessions poll, as those do that cannot watch enough members: to compare")
	flag.BoolVar(&p.upstream, "upstream", false, "sessions and locks of etcd's own package: to compare")
	flag.DurationVar(&p.session.TTL, "ttl", 0, "session.Options.TTL: a `time`")
	flag.DurationVar(&p.session.LockDelay, "lock-delay", 0, "session.Options.LockDelay: a `time`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, p); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run starts an etcd and the fleet, and prints a row for each stage.
func run(ctx context.Context, out io.Writer, p plan) (err error) {
	srv, err := etcdtest.New(etcdtest.Options{Fsync: true, DefaultTicks: true, Processes: true})
	if err != nil {
		return err
	}
	defer func() { _ = srv.Close() }() // the figures are made by then
	f := newFleet(srv.Endpoints(), p.session)
	f.polling = p.polling
	defer f.close()
	m := meter{metrics: "http://" + srv.Endpoints()[0] + "/metrics", out: out, plan: p, fleet: f}
	if err := m.begin(ctx); err != nil {
		return err
	}

	if p.upstream {
		return runUpstream(ctx, m)
	}
	start := time.Now()
	if err := f.open(ctx, p.processes); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d sessions opened in %.1f s\n\n", p.processes, time.Since(start).Seconds())
	if err := m.row(ctx, p.processes, "a session"); err != nil || p.locks == 0 {
		return err
	}
	if err := f.hold(ctx, p.locks); err != nil {
		return err
	}
	if err := m.row(ctx, p.processes, fmt.Sprintf("and holds %d", p.locks)); err != nil {
		return err
	}
	if err := f.wait(ctx); err != nil {
		return err
	}
	if err := m.row(ctx, 2*p.processes, "and waits for 1"); err != nil || p.busy == 0 {
		return err
	}
	done := f.loop(ctx, p.busy)
	err = m.row(ctx, 2*p.processes, fmt.Sprintf("%d lock and unlock", min(p.busy, p.processes)))
	return errors.Join(err, done())
}

// runUpstream is run with sessions of etcd's own package, which watch nothing.
func runUpstream(ctx context.Context, m meter) error {
	if err := m.fleet.openUpstream(ctx, m.plan.processes); err != nil {
		return err
	}
	if err := m.row(ctx, 0, "a session of upstream"); err != nil || m.plan.locks == 0 {
		return err
	}
	if err := m.fleet.holdUpstream(ctx, m.plan.locks); err != nil {
		return err
	}
	return m.row(ctx, 0, fmt.Sprintf("and holds %d", m.plan.locks))
}
