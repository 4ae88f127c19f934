package fencing

import (
	"context"
	"iter"
)

type holderKey struct{}

// heldContext is one of the nested holders of a context. It is immutable: contexts share it.
type heldContext struct {
	holder Holder // nil hides the outer holders from FromContext
	outer  *heldContext
}

// NewContext returns a context with h, in front of the holders of ctx. The scoped
// forms (Do, TryDo, Run, RunWhileLeader) do this for their function. With a nil h FromContext finds no
// holder.
func NewContext(ctx context.Context, h Holder) context.Context {
	if isNil(h) {
		h = nil
	}
	outer, _ := ctx.Value(holderKey{}).(*heldContext)
	return context.WithValue(ctx, holderKey{}, &heldContext{h, outer})
}

// FromContext returns the innermost holder of ctx. It may have been lost or released since:
// call its Check.
func FromContext(ctx context.Context) (Holder, bool) {
	if c, _ := ctx.Value(holderKey{}).(*heldContext); c != nil && c.holder != nil {
		return c.holder, true
	}
	return nil, false
}

// Holders returns all holders of ctx, innermost first, also if they were lost or released.
func Holders(ctx context.Context) iter.Seq[Holder] {
	innermost, _ := ctx.Value(holderKey{}).(*heldContext)
	return func(yield func(Holder) bool) {
		for c := innermost; c != nil; c = c.outer {
			if c.holder != nil && !yield(c.holder) {
				return
			}
		}
	}
}

type claimKey struct{}

// claimContext holds a context and its claim in one allocation: a server needs
// one per request.
type claimContext struct {
	context.Context
	claim Claim
}

func (c *claimContext) Value(key any) any {
	if key == (claimKey{}) {
		return &c.claim
	}
	return c.Context.Value(key)
}

// NewClaimContext returns a context with a claim of another process, for server halves of your
// own.
func NewClaimContext(ctx context.Context, c Claim) context.Context {
	return &claimContext{ctx, c}
}

// ClaimFromContext returns the claim of the request of ctx. Its name is that of the
// resource's lock; its token was compared only if a guard or filter came before.
func ClaimFromContext(ctx context.Context) (Claim, bool) {
	if c, ok := ctx.Value(claimKey{}).(*Claim); ok {
		return *c, true
	}
	return Claim{}, false
}
