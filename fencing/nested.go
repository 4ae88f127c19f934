package fencing

import (
	"context"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/internal/names"
)

type effectKey struct{}

// effectContext is the context of an effect.
type effectContext struct {
	context.Context
	store    *MemoryStore
	resource string
	over     atomic.Bool // the effect has returned
}

func (c *effectContext) Value(key any) any {
	if key == (effectKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// checkNesting refuses to wait for an effect of which ctx is a part.
func (s *MemoryStore) checkNesting(ctx context.Context, resource string) error {
	for {
		c, _ := ctx.Value(effectKey{}).(*effectContext)
		switch {
		case c == nil:
			return nil
		case c.store == s && c.resource == resource && !c.over.Load():
			return invalid("ctx", "is that of an effect on %s, for whose end this call would wait", names.Quote(resource))
		}
		ctx = c.Context
	}
}
