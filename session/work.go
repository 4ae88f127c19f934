package session

import (
	"context"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// work is what runs on a session, its own goroutines and those of locks, and what locks keep there. Close joins it.
type work struct {
	*env

	mu         sync.Mutex // protects what follows
	closed     bool
	running    sync.WaitGroup // Add only while !closed
	extensions map[any]any

	hooks hooks
}

// hooks are the functions registered with BeforeRevoke. Their mutex is not that of work, because they are registered
// when an extension is made.
type hooks struct {
	mu   sync.Mutex // protects list
	list []func(ctx context.Context, l *lease.Lease)
}

func (w *work) Go(f func(ctx context.Context)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.running.Go(func() { f(w.ctx) })
	return true
}

func (w *work) Joining() (done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return func() {}
	}
	w.running.Add(1)
	return w.running.Done
}

// close has Go and Joining refuse what begins later.
func (w *work) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

// wait waits for what runs. It is called after close.
func (w *work) wait() { w.running.Wait() }

func (w *work) Extension(key any, create func() any) any {
	w.mu.Lock()
	defer w.mu.Unlock()
	ext, ok := w.extensions[key]
	if !ok {
		ext = create()
		w.extensions[key] = ext
	}
	return ext
}

func (w *work) BeforeRevoke(hook func(ctx context.Context, l *lease.Lease)) {
	w.hooks.mu.Lock()
	defer w.hooks.mu.Unlock()
	w.hooks.list = append(w.hooks.list, hook)
}

// beforeRevoke runs the hooks for l, which is about to be revoked.
func (w *work) beforeRevoke(ctx context.Context, l *lease.Lease) {
	if lost := l.Lost(); lost == nil || lost.Cause == holdfast.CauseRevoked || lost.Cause == holdfast.CauseClusterChanged {
		return // never used; gone with its entries; or of another cluster
	}
	w.hooks.mu.Lock()
	list := w.hooks.list
	w.hooks.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, min(w.opts.CloseTimeout, w.opts.Retry.Attempt)/2)
	defer cancel()
	for _, hook := range slices.Backward(list) {
		hook(ctx, l)
	}
}

func (w *work) Detached(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), w.opts.CloseTimeout)
}
