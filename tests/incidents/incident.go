package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	srv, err := etcdtest.New(nil)
	if err != nil {
		return o, err
	}
	l := &lab{srv: srv}
	defer func() { err = errors.Join(err, l.close(), srv.Close()) }()
	return do(ctx, l)
}

// A lab is an etcd, and what a side has opened.
type lab struct {
	srv *etcdtest.Server

	mu      sync.Mutex // protects links, closers
	links   []*etcdtest.Link
	closers []func() error
}

func (l *lab) defers(f func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closers = append(l.closers, f)
}

func (l *lab) close() error {
	for _, link := range l.links {
		link.Heal() // or a session could not be closed
	}
	var errs []error
	for i := len(l.closers) - 1; i >= 0; i-- {
		errs = append(errs, l.closers[i]())
	}
	return errors.Join(errs...)
}

// client returns a client whose connection works.
func (l *lab) client() (*clientv3.Client, error) {
	cli, err := l.srv.NewClient()
	if err != nil {
		return nil, err
	}
	l.defers(func() error { _ = cli.Close(); return nil })
	return cli, nil
}

// link returns a way to etcd that can fail, with its client.
func (l *lab) link() (*etcdtest.Link, *clientv3.Client, error) {
	link, err := l.srv.NewLink()
	if err != nil {
		return nil, nil, err
	}
	l.defers(link.Close)
	l.mu.Lock()
	l.links = append(l.links, link)
	l.mu.Unlock()
	cli, err := link.NewClient()
	return link, cli, err
}

// upstream opens a session of package concurrency, which is left to the end of the server.
func upstream(cli *clientv3.Client, ttl int) (*concurrency.Session, error) {
	return concurrency.NewSession(cli, concurrency.WithTTL(ttl))
}

// open opens a session of holdfast, and closes it at the end.
func (l *lab) open(ctx context.Context, cli *clientv3.Client, o session.Options) (*session.Session, error) {
	o.Logger = quiet
	sess, err := session.New(ctx, cli, &o)
	if err != nil {
		return nil, err
	}
	l.defers(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return sess.Close(ctx)
	})
	return sess, nil
}

// keys waits until n keys stand below a prefix, and returns them.
func keys(ctx context.Context, cli *clientv3.Client, prefix string, n int) (*clientv3.GetResponse, error) {
	for {
		resp, err := cli.Get(ctx, prefix, clientv3.WithPrefix())
		if err != nil || len(resp.Kvs) == n {
			return resp, err
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return nil, err
		}
	}
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
