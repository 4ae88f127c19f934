package election

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Func is what runs in a term.
type Func = func(ctx context.Context, t *Term) error

// work is one call of a Func, on a goroutine of its own: it has to be possible
// to go on without it.
type work struct {
	term  *Term
	ended chan struct{} // closed when the call has ended, with what follows set

	err      error
	end      error // why the context had ended, or the term could not be proved, when fn returned; nil: neither
	returned bool  // or else it panicked, or left by runtime.Goexit
	panicked any
	stack    []byte

	taken atomic.Bool // set by the first to decide whether the call ended or was abandoned
}

// start runs fn in a term that elect has entered. The goroutine is joined by join, or else ends when fn returns.
func start(ctx context.Context, t *Term, fn Func) *work {
	w := &work{term: t, ended: make(chan struct{})}
	r := rosterOf(t.election)
	go func() {
		defer close(w.ended)
		defer w.finish(r)
		w.err = fn(ctx, t)
		w.end = w.reason(ctx)
		w.returned = true
	}()
	return w
}

// reason is why ctx, the call's own, has ended. It ends on a goroutine of its
// own: a function that asks Check may hear of it before, and return that.
func (w *work) reason(ctx context.Context) error {
	if ctx.Err() != nil || w.err == nil {
		return context.Cause(ctx)
	}
	err := w.term.Check()
	if errors.Is(err, holdfast.ErrSuspended) && !w.term.election.opts.CancelOnSuspended {
		return nil
	}
	return err
}

func (w *work) finish(r roster) {
	if !w.returned {
		if w.panicked = recover(); w.panicked != nil {
			w.stack = debug.Stack()
		}
	}
	r.left(w.term)
	if w.taken.CompareAndSwap(false, true) {
		return
	}
	w.log().Warn("holdfast: a function that outlived its term has returned", "error", w.err)
	if w.panicked != nil {
		panic(w.panicked) // there is no caller left to whom it could go on
	}
}

// join waits for the call to end; once ctx, which is the call's own, has ended,
// for at most limit. It reports false when that was not enough.
func (w *work) join(ctx context.Context, limit time.Duration) bool {
	select {
	case <-w.ended:
		return true
	case <-ctx.Done():
	}
	e := w.term.election
	rosterOf(e).toldToStop(w.term, e.queue.Session().Base().Clock()())
	patience := time.NewTimer(limit)
	defer patience.Stop()
	select {
	case <-w.ended:
		return true
	case <-patience.C:
	}
	if !w.taken.CompareAndSwap(false, true) {
		<-w.ended // just now, after all
		return true
	}
	return false
}

// goOn continues on the caller's goroutine what ended the call otherwise than
// by a return. The value of a panic stays what it was, so that whoever
// recovers it finds what was thrown; its stack, which ended with the goroutine,
// is logged.
func (w *work) goOn() {
	switch {
	case w.panicked != nil:
		w.log().Error("holdfast: the function of a term panicked; the term is released and the panic goes on",
			"panic", fmt.Sprint(w.panicked), "stack", string(w.stack))
		panic(w.panicked)
	case !w.returned:
		runtime.Goexit()
	}
}
