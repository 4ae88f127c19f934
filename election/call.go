package election

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/names"
)

// outcome is how one call of a user's function ended.
type outcome struct {
	err       error // what the function returned; ErrNotDrained if abandoned
	ended     error // why its context had ended when it returned; nil: it had not
	shutdown  bool  // the context given to Run had ended when it returned
	abandoned bool  // it has not returned and keeps running without its term

	lost *holdfast.LostError // of a term that was lost before it was resigned

	exited   bool // it ended by a panic or runtime.Goexit
	panicked any  // the panic's value; nil: Goexit
	stack    []byte
}

// call calls fn, waits for it to end, and resigns. Once fn's context has ended it waits for at most DrainTimeout; then
// the term is lost and fn is abandoned:
//
//	0 s    the term is kicked: fn's context ends
//	30 s   DrainTimeout is over: OnOverrun is called, the entry is removed, and others lead
//	47 s   fn returns: this session may lead again
func (t *Term) call(ctx context.Context, fn func(context.Context, *Term) error) outcome {
	fctx, cancel := t.WithContext(ctx)
	defer cancel()
	outcomes, abandoned := make(chan outcome), make(chan struct{})
	work := hold.NewWork(t.hold, nil, t.election.opts.OnOverrun, t.election.opts.CancelOnSuspended)
	t.turn.users.Add(1)
	t.turn.term.Store(t)
	go t.invoke(fctx, fn, work, outcomes, abandoned) // received below, or it ends when fn returns

	o, returned := t.await(fctx, outcomes)
	if returned {
		o.shutdown, o.lost = ctx.Err() != nil, t.hold.ReleaseAfterWork(ctx)
		return o
	}
	work.Overrun(holdfast.CauseNotDrained, time.Now().Add(-t.election.opts.drainTimeout()))
	close(abandoned)
	reason := t.hold.Abandon(holdfast.CauseNotDrained)
	t.logAbandoned(reason)
	return outcome{abandoned: true, err: fmt.Errorf("election %s: %w within %v: %w",
		names.Quote(t.Name()), ErrNotDrained, t.election.opts.drainTimeout(), reason)}
}

// await receives the outcome, for at most DrainTimeout after ctx, the function's context, has ended.
func (t *Term) await(ctx context.Context, outcomes <-chan outcome) (o outcome, returned bool) {
	select {
	case o := <-outcomes:
		return o, true
	case <-ctx.Done():
	}
	drain := time.NewTimer(t.election.opts.drainTimeout())
	defer drain.Stop()
	select {
	case o := <-outcomes:
		return o, true
	case <-drain.C:
	}
	select {
	case o := <-outcomes: // both were ready
		return o, true
	default:
		return outcome{}, false
	}
}

// invoke calls fn and sends the outcome. If the call was abandoned it reports the end itself: it logs an error and lets
// a panic end the process, since no caller is left to receive either.
func (t *Term) invoke(ctx context.Context, fn func(context.Context, *Term) error, work *hold.Work,
	outcomes chan<- outcome, abandoned <-chan struct{}) {
	o := outcome{exited: true}
	defer func() {
		if o.exited {
			if o.panicked = recover(); o.panicked != nil {
				o.stack = debug.Stack()
			}
		}
		t.turn.term.Store(nil)
		t.turn.done()
		select {
		case outcomes <- o:
		case <-abandoned:
			t.log().Warn("holdfast: abandoned function has returned", "error", o.err)
			if o.panicked != nil {
				panic(o.panicked)
			}
		}
	}()
	defer work.End()
	o.err = fn(ctx, t)
	o.ended = t.endOf(ctx, o.err)
	o.exited = false
}

// endOf returns why ctx has ended, the context of a function that has just returned err; nil if it has not. Contexts
// are canceled asynchronously: a function may find a loss or suspension by Check first, and return because of it.
func (t *Term) endOf(ctx context.Context, err error) error {
	if ctx.Err() != nil || err == nil {
		return context.Cause(ctx)
	}
	end := t.Check()
	if errors.Is(end, holdfast.ErrSuspended) && !t.election.opts.CancelOnSuspended {
		return nil
	}
	return end
}

// logAbandoned logs a function that keeps running without its term. If the term was held until now, the audit record of
// its loss says so already.
func (t *Term) logAbandoned(reason error) {
	var lost *holdfast.LostError
	if errors.As(reason, &lost) && lost.Cause == holdfast.CauseNotDrained {
		return
	}
	t.log().Warn("holdfast: function still running DrainTimeout after its term ended",
		"drain_timeout", t.election.opts.drainTimeout(), "error", reason)
}

// rethrow continues a panic or Goexit of the function on this goroutine. The panic keeps its value; its stack is
// logged.
func (t *Term) rethrow(o outcome) {
	switch {
	case !o.exited:
	case o.panicked == nil:
		runtime.Goexit()
	default:
		t.log().Error("holdfast: function panicked; its term was released",
			"panic", fmt.Sprint(o.panicked), "stack", string(o.stack))
		panic(o.panicked)
	}
}
