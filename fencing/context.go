package fencing

import (
	"context"
	"iter"
)

type holderKey struct{}

// heldContext is one of the nested holders of a context. It is immutable, so
// that contexts can share it.
type heldContext struct {
	holder Holder // nil hides the outer holders from FromContext
	outer  *heldContext
}

// NewContext returns a context that carries h, in front of the holders that ctx
// already carries. The scoped forms (Do, TryDo, Run, RunWhileLeader) do this for
// their function's context.
//
// A nil h means "no holder": FromContext then finds none, rather than an outer
// lock that the caller did not mean.
func NewContext(ctx context.Context, h Holder) context.Context {
	if isNil(h) {
		h = nil
	}
	outer, _ := ctx.Value(holderKey{}).(*heldContext)
	return context.WithValue(ctx, holderKey{}, &heldContext{h, outer})
}

// FromContext returns the innermost holder that ctx carries. It may have been
// lost or released since: call its Check. FromContext does not allocate.
func FromContext(ctx context.Context) (Holder, bool) {
	if c, _ := ctx.Value(holderKey{}).(*heldContext); c != nil && c.holder != nil {
		return c.holder, true
	}
	return nil, false
}

// Holders returns all holders that ctx carries, innermost first, including those
// that were lost or released.
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

// NewClaimContext returns a context that carries a claim which another process
// presented to this one. Use it in a server half of your own; use [NewContext]
// for a lock of this process.
func NewClaimContext(ctx context.Context, c Claim) context.Context {
	return &claimContext{ctx, c}
}

// ClaimFromContext returns the claim that was presented with the request of ctx.
// Its name was checked against the guarded resource; its token was compared only
// if a guard or filter ran before.
func ClaimFromContext(ctx context.Context) (Claim, bool) {
	if c, ok := ctx.Value(claimKey{}).(*Claim); ok {
		return *c, true
	}
	return Claim{}, false
}
