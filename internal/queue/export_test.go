package queue

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/watching"
)

// What tests of package queue_test see of the inside.

const (
	GiveUpWait   = lease.GiveUpWait
	MaxOps       = requests.MaxOps
	RecheckAfter = watching.RecheckAfter
)

// Used returns how many keys a queue's session has in use.
func (q *Queue) Used() int { return q.shared.keys.InUse() }

// Kept names the entries of a lease that the session accounts for.
func (q *Queue) Kept(l *lease.Lease) (kept []string) {
	for _, of := range q.shared.keys.Of(l, false) {
		e := of.(*entry)
		kept = append(kept, fmt.Sprintf("%s, stage %v", e.Key, e.stage))
	}
	return kept
}

// TryAcquire is Acquire with Request.Try.
func (s Set) TryAcquire(ctx context.Context, r Request) ([]*Grant, error) {
	r.Try = true
	return s.Acquire(ctx, r)
}
