package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// An incident is a failure that was reported in public.
type incident struct {
	name   string
	what   string // what happened, in a line
	other  string // what failed
	theirs side
	ours   side
}

// A side is what one client does in the situation.
type side func(ctx context.Context, l *lab) (outcome, error)

// An outcome is what was seen of it.
type outcome struct {
	failed bool
	text   string
}

func (o outcome) String() string {
	if o.failed {
		return "FAILED: " + o.text
	}
	return "held: " + o.text
}

func failedWith(format string, args ...any) (outcome, error) {
	return outcome{failed: true, text: fmt.Sprintf(format, args...)}, nil
}

func heldWith(format string, args ...any) (outcome, error) {
	return outcome{text: fmt.Sprintf(format, args...)}, nil
}

const (
	// chances is how often the other client may not fail, since some failures depend on the moment; and how often the
	// situation may not come about, since a busy machine loses short leases.
	chances = 3
	// patience is how long one of them may take.
	patience = 40 * time.Second
)

// run runs both sides, each on an etcd of its own.
func (i incident) run(ctx context.Context) (theirs, ours outcome, err error) {
	for n := 0; n < chances && !theirs.failed; n++ {
		theirs, err = onNewEtcd(ctx, i.theirs)
	}
	if err != nil {
		return theirs, ours, fmt.Errorf("%s: %w", i.other, err)
	}
	err = errors.New("it was not run")
	for n := 0; n < chances && err != nil; n++ {
		ours, err = onNewEtcd(ctx, i.ours)
	}
	if err != nil {
		return theirs, ours, fmt.Errorf("holdfast: %w", err)
	}
	return theirs, ours, nil
}

func onNewEtcd(ctx context.Context, do side) (o outcome, err error) {
	srv, err := etcdtest.New(etcdtest.Options{})
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, srv.Close()) }()
	l, err := newLab(srv)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel() // before l.close, which waits for what runs in the background
	return do(ctx, l)
}

// A lab is an etcd with two clients, and what a side has opened.
type lab struct {
	srv     *etcdtest.Server
	cli     *clientv3.Client // its connection works
	cutOff  *clientv3.Client // its connection is link
	link    *etcdtest.Link   // a way to etcd that can fail
	closers []func() error
}

// newLab returns a lab on an etcd. The caller closes it.
func newLab(srv *etcdtest.Server) (*lab, error) {
	cli, err := srv.NewClient()
	if err != nil {
		return nil, err
	}
	link, err := srv.NewLink()
	if err != nil {
		_ = cli.Close()
		return nil, err
	}
	return &lab{srv: srv, cli: cli, cutOff: link.Client(), link: link}, nil
}

// another returns another lab on the same etcd, and closes it with l.
func (l *lab) another() (*lab, error) {
	other, err := newLab(l.srv)
	if err != nil {
		return nil, err
	}
	l.closers = append(l.closers, other.close)
	return other, nil
}

// close closes what has been opened, the last first.
func (l *lab) close() error {
	l.link.Heal() // or a session could not be closed
	var errs []error
	for _, f := range slices.Backward(l.closers) {
		errs = append(errs, f())
	}
	_ = l.cli.Close()
	return errors.Join(append(errs, l.link.Close())...)
}

// upstream opens a session of package concurrency, which is left to the end of the server.
func upstream(cli *clientv3.Client, ttl int) (*concurrency.Session, error) {
	return concurrency.NewSession(cli, concurrency.WithTTL(ttl))
}

// upstreams opens two sessions of package concurrency, of which the first can be cut off by the link.
func (l *lab) upstreams(firstTTL, secondTTL int) (first, second *concurrency.Session, err error) {
	if first, err = upstream(l.cutOff, firstTTL); err != nil {
		return nil, nil, err
	}
	second, err = upstream(l.cli, secondTTL)
	return first, second, err
}

// open opens a session of holdfast, and closes it at the end.
func (l *lab) open(ctx context.Context, cli *clientv3.Client, ttl time.Duration) (*session.Session, error) {
	sess, err := session.New(ctx, cli, session.Options{TTL: ttl, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	l.closers = append(l.closers, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return sess.Close(ctx)
	})
	return sess, nil
}

// sessions opens two sessions of holdfast, of which the first can be cut off by the link.
func (l *lab) sessions(
	ctx context.Context, firstTTL, secondTTL time.Duration,
) (first, second *session.Session, err error) {
	if first, err = l.open(ctx, l.cutOff, firstTTL); err != nil {
		return nil, nil, err
	}
	second, err = l.open(ctx, l.cli, secondTTL)
	return first, second, err
}

// keys waits until n keys stand below a prefix.
func (l *lab) keys(ctx context.Context, prefix string, n int) error {
	for {
		resp, err := l.cli.Get(ctx, prefix, clientv3.WithPrefix())
		if err != nil || len(resp.Kvs) == n {
			return err
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// background calls f in a goroutine, which ends with ctx at the latest, and waits for it at the end.
func (l *lab) background(f func() error) {
	done := in(f)
	l.closers = append(l.closers, func() error { <-done; return nil })
}

// pause waits for d.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// in calls f in a goroutine, which ends with ctx at the latest, and returns the time at which it had returned.
func in(f func() error) <-chan returned {
	done := make(chan returned, 1)
	go func() {
		err := f()
		done <- returned{time.Now(), err}
	}()
	return done
}

type returned struct {
	at  time.Time
	err error
}

// ms rounds a duration for people.
func ms(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
