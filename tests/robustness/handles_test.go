package robustness

import (
	"context"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// handle is what a lock and a term have in common, for tests of what holds for
// both.
type handle interface {
	fencing.Holder
	Key() string
	Done() <-chan struct{}
	WithContext(context.Context) (context.Context, context.CancelFunc)
}

// kinds are the ways to hold a name. Their keys are those of the entries too:
// holdfast/KIND/NAME/@/.
var kinds = map[string]func(ctx context.Context, sess *session.Session, name, owner string) (handle, error){
	"lock": func(ctx context.Context, sess *session.Session, name, owner string) (handle, error) {
		return locker.NewMutex(sess, name).With(locker.Options{Owner: owner}).Lock(ctx)
	},
	"election": func(ctx context.Context, sess *session.Session, name, owner string) (handle, error) {
		return election.New(sess, name).Campaign(ctx, owner)
	},
}

// release ends a lock or a term.
func release(ctx context.Context, h handle) error {
	if lk, ok := h.(*locker.Lock); ok {
		return lk.Unlock(ctx)
	}
	return h.(*election.Term).Resign(ctx)
}

// pausedAfterCheck is a handle as it looks to code that was paused right after
// it had checked.
type pausedAfterCheck struct{ fencing.Holder }

func (pausedAfterCheck) Check() error { return nil }
