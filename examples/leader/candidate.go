//go:build unix

package main

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/session"
)

// job is the input of a candidate.
type job struct {
	Endpoints []string
	Election  string
	Output    string // the key that the leader writes
}

// The events of a candidate, each with the token of its term.
const (
	elected = "elected"
	drained = "drained"
)

// campaign is a candidate: it leads, term after term, until it is asked to end. Run does all of it; the function is
// what a leader does. Its error, as of a write that etcd did not answer, ends Run: what supervises the process starts
// it again.
func campaign(ctx context.Context, name string, j job, parent *child.Parent[holdfast.Token]) (err error) {
	cli, err := session.NewClient(ctx, session.ClientConfig(j.Endpoints...))
	if err != nil {
		return err
	}
	defer cli.Close()
	sess, err := session.New(ctx, cli, session.Options{TTL: demo.TTL})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sess.Close(ctx)) }()

	err = election.New(sess, j.Election).With(election.Options{Value: name}).Run(ctx,
		func(ctx context.Context, t *election.Term) error {
			w := etcdfence.NewWriter(t) // etcd refuses the writes of a stale leader
			if _, err := w.Put(ctx, j.Output, t.Token().String()); err != nil {
				return err
			}
			parent.Say(elected, t.Token())
			<-ctx.Done() // deposed, or asked to end; context.Cause says which
			if t.Check() == nil {
				parent.Say(drained, t.Token()) // the next leader waits until this function has returned
			}
			return nil
		})
	if errors.Is(err, context.Canceled) {
		return nil // asked to end
	}
	return err
}
