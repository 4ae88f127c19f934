package fencing

import (
	"context"
	"iter"

	"github.com/holdfast-go/holdfast/internal/names"
)

type holderKey struct{}

// heldContext is one of the nested holds of a context. It is immutable: contexts share it.
type heldContext struct {
	hold  Hold // nil, and what is no Holder, hides the outer holders from FromContext
	outer *heldContext
}

// NewContext returns a context with h, in front of the holds of ctx. The scoped forms (Do, TryDo, Run, RunWhileLeader)
// do this for their function. With a nil h, and one that is no [Holder], FromContext finds no holder.
func NewContext(ctx context.Context, h Hold) context.Context {
	if names.IsNil(h) {
		h = nil
	}
	outer, _ := ctx.Value(holderKey{}).(*heldContext)
	return context.WithValue(ctx, holderKey{}, &heldContext{h, outer})
}

// FromContext returns the innermost holder of ctx. It may have been lost or released since:
// call its Check.
func FromContext(ctx context.Context) (Holder, bool) {
	if c, _ := ctx.Value(holderKey{}).(*heldContext); c != nil {
		h, ok := c.hold.(Holder)
		return h, ok
	}
	return nil, false
}

// Holds returns all that ctx holds, innermost first, also if it was lost or released.
func Holds(ctx context.Context) iter.Seq[Hold] {
	innermost, _ := ctx.Value(holderKey{}).(*heldContext)
	return func(yield func(Hold) bool) {
		for c := innermost; c != nil; c = c.outer {
			if c.hold != nil && !yield(c.hold) {
				return
			}
		}
	}
}

type claimKey struct{}

// NewClaimContext returns a context with a claim of another process, for server halves of your
// own.
func NewClaimContext(ctx context.Context, c Claim) context.Context {
	return context.WithValue(ctx, claimKey{}, c)
}

// ClaimFromContext returns the claim of the request of ctx. Its name is that of the
// resource's lock; its token was compared only if a guard or filter came before.
func ClaimFromContext(ctx context.Context) (Claim, bool) {
	c, ok := ctx.Value(claimKey{}).(Claim)
	return c, ok
}
