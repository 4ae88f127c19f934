//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/session"
)

// candidateCommand makes this program one of the candidates.
const candidateCommand = "candidate"

// job is what a candidate is told.
type job struct {
	Endpoints []string
	Election  string
	Output    string // the key that the leader writes
}

// event is one line that a candidate prints.
type event struct {
	What  string
	Token fencing.Token
}

// The events.
const (
	elected = "elected"
	drained = "drained"
)

// campaign is what a candidate does: lead, term after term, until it is told to
// end. All of it is in Run; the function is what a leader does.
func campaign(ctx context.Context, name string, j job, say func(event)) (err error) {
	cli, err := clientv3.New(session.ClientConfig(j.Endpoints...))
	if err != nil {
		return err
	}
	defer cli.Close()
	sess, err := session.New(ctx, cli, &session.Options{TTL: ttl})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sess.Close(ctx)) }()

	err = election.New(sess, j.Election).Run(ctx, name, func(ctx context.Context, t *election.Term) error {
		// A stale leader's write would be refused by etcd.
		w := fencing.NewFencedWriter(t)
		if _, err := w.Put(ctx, j.Output, t.Token().String()); err != nil {
			return err
		}
		say(event{elected, t.Token()})
		<-ctx.Done() // deposed, or told to end: context.Cause says which
		if t.Check() == nil {
			say(event{drained, t.Token()}) // nobody else leads before this returns
		}
		return nil
	})
	if errors.Is(err, context.Canceled) {
		return nil // told to end
	}
	return err
}

// candidateMain runs campaign for a parent that reads events from stdout. It
// ends on SIGTERM, and when stdin ends: then the parent has.
func candidateMain(args []string) (exitCode int) {
	var j job
	if len(args) != 2 || json.Unmarshal([]byte(args[1]), &j) != nil {
		fmt.Fprintln(os.Stderr, "usage: leader", candidateCommand, "NAME JOB")
		return 2
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	go func() { // ends with stdin, or with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	out := json.NewEncoder(os.Stdout)
	say := func(ev event) {
		if out.Encode(ev) != nil {
			cancel() // nobody listens
		}
	}
	if err := campaign(ctx, args[0], j, say); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
