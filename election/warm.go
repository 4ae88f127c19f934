package election

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/retry"
)

// standby is one call of Options.Warm, beside a campaign.
type standby struct {
	ctx      context.Context // of Warm, and of the campaign
	cancel   context.CancelCauseFunc
	elected  chan struct{}
	returned chan struct{} // closed when Warm has returned
	err      error         // of a Warm that failed by itself; read after returned
}

// warmError is an error of Warm. It ends Run.
type warmError struct{ error }

func (e *warmError) Unwrap() error { return e.error }

// standBy campaigns, with Warm beside it, and returns the term when Warm has returned. The term may be lost by then.
func (e *Election) standBy(ctx context.Context, turn *turn) (*Term, error) {
	if e.opts.Warm == nil {
		return e.Campaign(ctx)
	}
	start := time.Now()
	s := e.warm(ctx, turn)
	t, err := e.Campaign(s.ctx)
	if err == nil {
		close(s.elected)
		ended, forget := t.hold.Context(context.Background(), false)
		context.AfterFunc(ended, func() { forget(); s.cancel(context.Cause(ended)) })
	} else {
		s.cancel(err)
	}
	if undrained := s.join(e.opts.drainTimeout()); undrained != nil {
		err = e.failed(time.Since(start), undrained)
	} else if s.err != nil {
		err = e.failed(time.Since(start), fmt.Errorf("election: Options.Warm failed: %w", &warmError{s.err}))
	} else if err == nil && ctx.Err() != nil {
		err = e.failed(time.Since(start), retry.ContextErr(ctx))
	}
	if err != nil && t != nil {
		_ = t.hold.ReleaseAfterWork(ctx)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// warm calls Warm on a goroutine of its own, which join joins. A failure of Warm ends the campaign.
func (e *Election) warm(ctx context.Context, turn *turn) *standby {
	s := &standby{elected: make(chan struct{}), returned: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	turn.users.Add(1) // join may give up; the next call must wait for Warm all the same
	go func() {
		defer close(s.returned)
		defer turn.done()
		if err := e.opts.Warm(s.ctx, s.elected); err != nil && s.ctx.Err() == nil {
			s.err = err
			s.cancel(err)
		}
	}()
	return s
}

// join waits until Warm has returned, for at most drain after its context has ended: with the campaign, the term, or
// Run. The error Is ErrNotDrained. Meanwhile the entry of a kicked term keeps the name from others.
func (s *standby) join(drain time.Duration) error {
	select {
	case <-s.returned:
		return nil
	case <-s.ctx.Done():
	}
	patience := time.NewTimer(drain)
	defer patience.Stop()
	select {
	case <-s.returned:
		return nil
	case <-patience.C:
		return fmt.Errorf("%w: %w: Options.Warm goes on %v after its context has ended",
			retry.ContextErr(s.ctx), ErrNotDrained, drain)
	}
}
