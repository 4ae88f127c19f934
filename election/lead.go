package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
)

// RunWhileLeader campaigns, runs fn for one term, and resigns when fn has
// returned. fn's context is done when the term is lost (context.Cause says
// why), before anybody else can lead; it carries the term for fencing, and is
// a child of ctx.
//
// The order at the end is drain, then release: when fn's context ends, fn is
// waited for; until it has returned the entry stays, if the term is not lost,
// and the lease is renewed. If fn has not returned after Options.DrainTimeout,
// the term is lost with holdfast.CauseNotDrained, its entry, and only that, is
// removed, and the call returns an error that Is ErrNotDrained. fn then still
// runs, and nothing but fencing keeps it from doing harm; no other fn of this
// election is run on this session before it has returned.
//
// Errors before fn ran are a *CampaignError. Afterwards it is fn's own, joined
// with the *holdfast.LostError if the term was lost meanwhile, even if fn
// returned nil; or ErrNotDrained joined with how the term ended. A resignation
// whose outcome is unknown is no error: the work is done, and the session goes
// on removing the entry.
//
// fn runs on a goroutine of its own. A panic in it, or a runtime.Goexit,
// resigns and goes on on the caller's goroutine, with the same value; the
// stack of its origin is logged.
func (e *Election) RunWhileLeader(ctx context.Context, value string, fn Func) error {
	t, err := e.elect(ctx, value, fn)
	if err != nil {
		return err
	}
	return e.serve(ctx, t, fn).result()
}

func (e *Election) admitFunc(ctx context.Context, value string, fn Func) error {
	if fn == nil {
		return &holdfast.ArgumentError{Argument: "fn", Reason: "is nil"}
	}
	return e.admit(ctx, value)
}

// elect wins a term in which fn can run: on this session no function of an
// earlier term runs any more.
func (e *Election) elect(ctx context.Context, value string, fn Func) (*Term, error) {
	began := time.Now()
	if err := e.admitFunc(ctx, value, fn); err != nil {
		return nil, e.failed(0, err)
	}
	for {
		// Not while queued, where it would cost the place: a function that
		// runs in a live term does not hinder, it is ahead in the queue.
		if err := rosterOf(e).cleared(ctx, e.queue.Session()); err != nil {
			return nil, e.failed(time.Since(began), err)
		}
		t, err := e.Campaign(ctx, value)
		if err != nil {
			return nil, err
		}
		// From here on others see a function in t, and after that t is seen to
		// be held: whoever is elected once t is lost finds the function, and a
		// term that is lost already gets none.
		rosterOf(e).enter(t)
		if old, _ := rosterOf(e).lingering(); old == nil {
			return t, nil
		}
		// t itself is over; or another's term ended while this call was queued,
		// and somebody else had better lead until its function has returned.
		rosterOf(e).left(t)
		_ = t.hold.ReleaseQuietly(ctx)
	}
}

// served is how a term went.
type served struct {
	err         error               // fn's own, of its last call
	end         error               // why fn's context had ended before that call returned; nil: it had not
	interrupted bool                // the caller's context had
	lost        *holdfast.LostError // the term was lost before fn had returned
	undrained   error               // not nil: fn has not returned
}

// result is what a caller is told.
func (s served) result() error {
	switch {
	case s.undrained != nil:
		return s.undrained
	case s.lost != nil && !carries(s.err, s.lost):
		return errors.Join(s.err, s.lost)
	default:
		return s.err
	}
}

// serve runs fn once in a term, and ends the term.
func (e *Election) serve(ctx context.Context, t *Term, fn Func) served {
	return e.serveAgain(ctx, t, fn, func(served) bool { return false })
}

// serveAgain runs fn in a term to its end, and ends the term. It runs fn once
// more in the same term for as long as again says so of the call before.
func (e *Election) serveAgain(ctx context.Context, t *Term, fn Func, again func(served) bool) served {
	for {
		w, undrained := e.call(ctx, t, fn)
		if undrained != nil {
			return served{undrained: undrained}
		}
		s := served{err: w.err, end: w.end, interrupted: ctx.Err() != nil}
		if w.returned && again(s) {
			rosterOf(e).enter(t)
			if t.hold.Live() {
				continue
			}
			rosterOf(e).left(t) // see elect
		}
		s.lost = t.hold.ReleaseQuietly(ctx)
		w.goOn()
		return s
	}
}

// call runs fn once in a term and waits for it. With an error fn has not
// returned in time, and the term is lost.
func (e *Election) call(ctx context.Context, t *Term, fn Func) (w *work, undrained error) {
	fctx, cancel := t.Context(ctx)
	defer cancel()
	w = start(fctx, t, fn)
	limit := e.opts.drainTimeout()
	if w.join(fctx, limit) {
		return w, nil
	}
	how := t.hold.Abandon(holdfast.CauseNotDrained)
	w.log().Warn("holdfast: a function has not returned in time after its context ended; it goes on running without its term",
		"drain_timeout", limit, "term", how)
	return w, fmt.Errorf("election %s: %w, within %v: %w", names.Quote(e.Name()), ErrNotDrained, limit, how)
}

// carries reports whether err has this very loss in its chain already, as when
// fn returned its context's cause.
func carries(err error, lost *holdfast.LostError) bool {
	var found *holdfast.LostError
	return errors.As(err, &found) && found == lost
}

func (w *work) log() *slog.Logger {
	e := w.term.election
	return e.queue.Session().Logger().With("election", e.Name(), "token", w.term.Token())
}
