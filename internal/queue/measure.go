package queue

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
)

// measured runs one acquisition under a span, which its hold remembers.
func (q *Queue) measured(ctx context.Context, r Request, acquire func(context.Context, Request) (*Hold, error)) (*Hold, error) {
	ctx, r.telemetry = q.sess.Telemetry().Acquire(ctx, q.kind, q.name)
	h, err := acquire(ctx, r)
	if err != nil {
		r.telemetry.Failed(q.outcome(ctx, err))
	}
	return h, err
}

// outcome is why there is no hold, and whether that is an error rather than an
// answer to the caller's own question.
func (q *Queue) outcome(ctx context.Context, err error) (outcome string, isError bool) {
	switch {
	case errors.Is(err, ErrOccupied):
		return "occupied", false
	case errors.Is(err, holdfast.ErrClosed):
		return "closed", true
	case ctx.Err() != nil:
		return "cancelled", false
	case errors.Is(err, holdfast.ErrLost):
		return "lost", true
	default:
		return "failed", true
	}
}

// measureRelease opens the span of a release; what it returns closes it.
func (h *Hold) measureRelease(ctx context.Context) func(error) {
	end := h.telemetry.Release(ctx)
	return func(err error) {
		switch {
		case err == nil:
			end("released")
		case errors.Is(err, holdfast.ErrOutcomeUnknown):
			end("unknown")
		case errors.Is(err, holdfast.ErrLost):
			end("lost")
		default:
			end("failed")
		}
	}
}

// unknown reports whether an error leaves open if the request was carried out,
// and counts it if so.
func (q *Queue) unknown(request string, err error) bool {
	if etcderr.Classify(err) != etcderr.Unknown {
		return false
	}
	q.sess.Telemetry().Ambiguous(q.kind, request)
	return true
}
