package kubelock

import (
	"context"

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
// object is reconciled right after a hand-over, and not when all objects have been listed. It is a manager.Runnable and
// a manager.LeaderElectionRunnable, as a Runnable is.
type Controllers struct {
	Runnable
	build func(ctx context.Context) ([]Starter, error)
	warm  chan *warmed // for the next term
}

// warmed are the controllers of one term.
type warmed struct {
	all  []Starter
	end  func()        // of the context in which they were warmed
	over chan struct{} // closed when the term has ended
}

// NewControllers returns Controllers, for the manager to start.
//
//	err := mgr.Add(kubelock.NewControllers(el, func(ctx context.Context) ([]kubelock.Starter, error) {
//		c, err := controller.NewUnmanaged("shop", controller.Options{
//			Reconciler: r, EnableWarmup: ptr.To(true), SkipNameValidation: ptr.To(true),
//		})
//		if err != nil {
//			return nil, err
//		}
//		return []kubelock.Starter{c}, c.Watch(source.Kind(mgr.GetCache(), …))
//	}))
//
// build is called for each term, before it begins, since a controller starts only once; its names are the same each
// time, so set SkipNameValidation. It makes unmanaged controllers, whose sources read the cache of the manager, and
// writes nothing: another replica leads meanwhile. Its error, and that of a Warmup, ends Start, and with that the
// manager. Each term leaves an event handler per source in the manager's cache: controller-runtime removes none.
func NewControllers(el *election.Election, build func(ctx context.Context) ([]Starter, error)) *Controllers {
	c := &Controllers{build: build, warm: make(chan *warmed)}
	c.Runnable = *NewRunnable(el, c.run)
	return c
}

// Start leads term after term until ctx ends, as Runnable.Start does, and keeps the controllers of the next term warm.
func (c *Controllers) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 1)
	go func() { // joined below
		defer cancel()
		failed <- c.keepWarm(ctx)
	}()
	err := c.Runnable.Start(ctx)
	cancel()
	if warm := <-failed; warm != nil {
		return warm
	}
	return err
}

// keepWarm makes and warms the controllers of each term, until ctx ends.
func (c *Controllers) keepWarm(ctx context.Context) error {
	for ctx.Err() == nil {
		term, end := context.WithCancel(ctx)
		next := &warmed{end: end, over: make(chan struct{})}
		var err error
		if next.all, err = c.make(term); err == nil {
			err = all(next.all, warmUp(term))
		}
		if err != nil {
			end()
			if ctx.Err() != nil { // perhaps build says so; Start has another reason to end
				return nil
			}
			return err
		}
		select {
		case c.warm <- next:
			select {
			case <-next.over:
			case <-ctx.Done(): // a controller may hang
			}
		case <-ctx.Done():
		}
		end()
	}
	return nil
}

func warmUp(ctx context.Context) func(Starter) error {
	return func(s Starter) error {
		w, ok := s.(warmer)
		if !ok {
			return nil
		}
		if err := w.Warmup(ctx); ctx.Err() == nil {
			return err
		}
		return nil // the replica ends
	}
}

// run starts the controllers of a term, and returns when all have ended, with the first error. When one ends, the
// others' context is canceled.
func (c *Controllers) run(ctx context.Context, _ *election.Term) error {
	select {
	case next := <-c.warm:
		defer close(next.over)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		// The workers of a controller wait at its queue, which ends with the context in which the controller was warmed.
		defer context.AfterFunc(ctx, next.end)()
		return all(next.all, func(s Starter) error {
			defer cancel()
			return s.Start(ctx)
		})
	case <-ctx.Done():
		return nil
	}
}

// all calls do for each, side by side, and returns the first error when all have returned.
func all(each []Starter, do func(Starter) error) (err error) {
	errs := make(chan error)
	for _, s := range each {
		go func() { errs <- do(s) }() // received below
	}
	for range each {
		if failed := <-errs; failed != nil && err == nil {
			err = failed
		}
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
