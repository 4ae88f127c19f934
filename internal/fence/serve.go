package fence

import (
	"context"
	"errors"
	"log/slog"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
)

// Serve runs effect in s for a claim that was presented to this process. The
// effect's context carries the claim. At most one of its errors is not nil:
//
//   - own is that of the effect, unchanged: the client gets the effect's answer;
//   - err is that of s, marked with fencing.ErrNotDone if effect did not run: it takes
//     the place of the answer. If effect failed, and s cannot tell that nothing of it is
//     committed, it Is holdfast.ErrOutcomeUnknown.
func Serve(
	ctx context.Context, s fencing.Store, resource string, c fencing.Claim, effect func(ctx context.Context) error,
) (own, err error) {
	e := &recorded{effect: effect}
	err = s.Do(fencing.NewClaimContext(ctx, c), resource, c, e.run)
	if e.err != nil && (errors.Is(e.err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, holdfast.ErrOutcomeUnknown)) {
		return e.err, nil
	}
	if e.ran {
		return nil, err
	}
	if err == nil {
		err = errNotRun
	}
	if !errors.Is(err, fencing.ErrNotDone) {
		err = fencing.NotDone(err)
	}
	return nil, err
}

var errNotRun = errors.New("fencing: the store returned nil without running the effect")

// recorded is an effect, whether it ran, and its error.
type recorded struct {
	effect func(ctx context.Context) error
	ran    bool
	err    error
}

func (e *recorded) run(ctx context.Context) error {
	e.ran = true
	e.err = e.effect(ctx)
	return e.err
}

// Refuse is called when the client gets err. It calls AuditRefusal, and logs a cause that is not the claim's fault:
// that is not sent to the client, and the log is where an operator can see it.
func Refuse(
	ctx context.Context, a audit.Auditor, resource string, c fencing.Claim, client string, err error,
) {
	AuditRefusal(ctx, a, resource, c, client, err)
	verdict := VerdictOf(err)
	gaveUp := verdict == NothingDone && ctx.Err() != nil // the client, while it waited for the resource
	if gaveUp || verdict != NothingDone && verdict != OutcomeUnknown {
		return
	}
	slog.ErrorContext(ctx, "fencing: a request failed, and its client is not told the cause",
		"resource", resource, "name", c.Name, "token", c.Token, "client", client, "error", err)
}

// AuditRefusal tells a that c was refused, if err says so: it Is fencing.ErrStale,
// ErrOtherName, ErrNoToken or ErrBadClaim. Other errors are not the claim's fault,
// and not recorded. client is the address of the client, if it is known.
func AuditRefusal(
	ctx context.Context, a audit.Auditor, resource string, c fencing.Claim, client string, err error,
) {
	switch {
	case errors.Is(err, fencing.ErrStale), errors.Is(err, fencing.ErrOtherName),
		errors.Is(err, holdfast.ErrNoToken), errors.Is(err, fencing.ErrBadClaim):
	default:
		return
	}
	r := audit.Record{
		Event: audit.Refused, Name: c.Name, Token: c.Token, Resource: resource, Holder: client, Err: err,
	}
	var below *fencing.MarkError
	if errors.As(err, &below) {
		r.Mark = below.Mark
	}
	audit.Tell(ctx, a, r)
}
