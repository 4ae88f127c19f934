package kubelock

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/election"
)

// Runnable runs a function while this replica leads. It is a manager.Runnable and a manager.LeaderElectionRunnable of
// controller-runtime: add it to a manager whose LeaderElection is off.
type Runnable struct {
	election *election.Election
	fn       func(context.Context, *election.Term) error
}

// NewRunnable returns a Runnable that calls fn for each term, as Election.Run does.
//
// fn's context carries the term for package fencing, and is canceled when the term is lost or the manager stops. The
// next leader starts after fn has returned, at most the election's DrainTimeout later; choose that shorter than the
// manager's GracefulShutdownTimeout, and that shorter than the pod's termination grace period.
//
// To run controllers in it, make a manager for each term, since a manager starts only once:
//
//	kubelock.NewRunnable(el, func(ctx context.Context, term *election.Term) error {
//		mgr, err := manager.New(restConfig, manager.Options{
//			BaseContext: func() context.Context { return ctx }, // so that reconcilers find the term
//			Controller:  config.Controller{SkipNameValidation: ptr.To(true)}, // each term has the same names
//			Metrics:     server.Options{BindAddress: "0"}, // the manager around it has the port
//			…
//		})
//		…
//		return mgr.Start(ctx) // waits for the reconcilers
//	})
func NewRunnable(el *election.Election, fn func(ctx context.Context, term *election.Term) error) *Runnable {
	return &Runnable{el, fn}
}

// Start leads term after term until ctx ends, and then returns nil. An error of fn in a term that was not lost is
// returned, and ends the manager; see Election.Run for the others. Is election.ErrNotDrained: fn still runs.
func (r *Runnable) Start(ctx context.Context) error {
	err := r.election.Run(ctx, r.fn)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) && !errors.Is(err, election.ErrNotDrained) {
		return nil
	}
	return err
}

// NeedLeaderElection returns false: the manager starts a Runnable on each replica, and it elects by itself.
func (r *Runnable) NeedLeaderElection() bool { return false }
