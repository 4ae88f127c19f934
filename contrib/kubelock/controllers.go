package kubelock

import (
	"context"
	"sync"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
)

// Starter is a manager.Runnable of controller-runtime, such as a controller. One that also has the method
// Warmup(context.Context) error, as a controller with the option EnableWarmup has, is warmed before it is started.
type Starter interface {
	Start(ctx context.Context) error
}

type warmer interface {
	Warmup(ctx context.Context) error
}

// Controllers runs controllers while this replica leads, and has their sources filled while it is queued: so the first
// object is reconciled right after a hand-over, and not when all objects have been listed.
type Controllers struct {
	build func(ctx context.Context) ([]Starter, error)

	mu   sync.Mutex // protects warm
	warm []Starter  // for the next term
}

// NewControllers returns Controllers. It starts nothing: pass Warm and Run on.
//
//	ctrls := kubelock.NewControllers(func(ctx context.Context) ([]kubelock.Starter, error) {
//		c, err := controller.NewUnmanaged("shop", controller.Options{
//			Reconciler: r, EnableWarmup: ptr.To(true), SkipNameValidation: ptr.To(true),
//		})
//		if err != nil {
//			return nil, err
//		}
//		return []kubelock.Starter{c}, c.Watch(source.Kind(mgr.GetCache(), …))
//	})
//	el := election.New(sess, "shop/operator").With(election.Options{Value: pod, Warm: ctrls.Warm})
//	err := mgr.Add(kubelock.NewRunnable(el, ctrls.Run))
//
// build is called for each campaign, since a controller starts only once; its names are the same each time, so set
// SkipNameValidation. It makes unmanaged controllers, whose sources read the cache of the manager, and writes nothing:
// another replica leads meanwhile. Its error ends Election.Run, and with that the manager.
func NewControllers(build func(ctx context.Context) ([]Starter, error)) *Controllers {
	return &Controllers{build: build}
}

// Warm is election.Options.Warm: it makes the controllers and returns when all are warm. An error of build or of a
// Warmup ends Election.Run.
func (c *Controllers) Warm(ctx context.Context, _ <-chan struct{}) error {
	all, err := c.make(ctx)
	if err != nil {
		return err
	}
	errs := make(chan error)
	for _, s := range all {
		go func() { errs <- warmUp(ctx, s) }() // received below
	}
	for range all {
		if failed := <-errs; failed != nil && err == nil {
			err = failed
		}
	}
	if err != nil || ctx.Err() != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.warm = all
	return nil
}

func warmUp(ctx context.Context, s Starter) error {
	w, ok := s.(warmer)
	if !ok {
		return nil
	}
	if err := w.Warmup(ctx); ctx.Err() == nil {
		return err
	}
	return nil // the campaign, or the term, is over
}

// Run is the function of a Runnable: it starts the controllers, and returns when all have ended, with the first error.
// When one ends, the others' context is canceled. Without Warm before it, it makes them, cold.
func (c *Controllers) Run(ctx context.Context, _ *election.Term) error {
	c.mu.Lock()
	all := c.warm
	c.warm = nil
	c.mu.Unlock()
	var err error
	if all == nil {
		if all, err = c.make(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error)
	for _, s := range all {
		go func() { errs <- s.Start(ctx) }() // received below
	}
	for range all {
		if failed := <-errs; failed != nil && err == nil {
			err = failed
		}
		cancel()
	}
	return err
}

func (c *Controllers) make(ctx context.Context) ([]Starter, error) {
	all, err := c.build(ctx)
	if err == nil && len(all) == 0 {
		err = &holdfast.ArgumentError{Argument: "build", Reason: "has made no controller"}
	}
	return all, err
}
