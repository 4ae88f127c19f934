package fencing

import (
	"context"
	"iter"
)

type contextKey struct{}

// carried is one link of the chain of holders in a context. Links are never
// changed, so contexts share them.
type carried struct {
	holder Holder // nil: hides the holders further out from FromContext
	outer  *carried
}

// NewContext returns a context that carries h. The scoped forms (Do, TryDo, Run,
// RunWhileLeader) and the Context methods of locks and terms do that by
// themselves. ctx may carry holders already; they stay beneath.
//
// A nil h is carried as "no holder": code further down must not take an outer
// lock for the one that its caller meant.
func NewContext(ctx context.Context, h Holder) context.Context {
	if isNil(h) {
		h = nil
	}
	outer, _ := ctx.Value(contextKey{}).(*carried)
	return context.WithValue(ctx, contextKey{}, &carried{h, outer})
}

// FromContext returns the holder that ctx carries, the innermost if there are
// several. It may have been lost or released meanwhile: its Check tells.
// FromContext does not allocate.
func FromContext(ctx context.Context) (Holder, bool) {
	if c, _ := ctx.Value(contextKey{}).(*carried); c != nil && c.holder != nil {
		return c.holder, true
	}
	return nil, false
}

// Holders ranges over all holders that ctx carries, innermost first, whether
// lost, released or live.
func Holders(ctx context.Context) iter.Seq[Holder] {
	innermost, _ := ctx.Value(contextKey{}).(*carried)
	return func(yield func(Holder) bool) {
		for c := innermost; c != nil; c = c.outer {
			if c.holder != nil && !yield(c.holder) {
				return
			}
		}
	}
}
