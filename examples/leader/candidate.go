//go:build unix

package main

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/session"
)

// job is what a candidate is told.
type job struct {
	Endpoints []string
	Election  string
	Output    string // the key that the leader writes
}

// What a candidate says, each with the token of its term.
const (
	elected = "elected"
	drained = "drained"
)

// campaign is what a candidate does: lead, term after term, until it is told to
// end. All of it is in Run; the function is what a leader does.
func campaign(ctx context.Context, name string, j job, parent *child.Parent[fencing.Token]) (err error) {
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
		parent.Say(elected, t.Token())
		<-ctx.Done() // deposed, or told to end: context.Cause says which
		if t.Check() == nil {
			parent.Say(drained, t.Token()) // nobody else leads before this returns
		}
		return nil
	})
	if errors.Is(err, context.Canceled) {
		return nil // told to end
	}
	return err
}
