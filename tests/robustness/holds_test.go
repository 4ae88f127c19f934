package robustness

import (
	"context"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// hold is a *locker.Lock or an *election.Term.
type hold interface {
	fencing.Holder
	Key() string
	Done() <-chan struct{}
	WithContext(context.Context) (context.Context, context.CancelFunc)
}

// kinds acquire a name as a lock or as a term. Each key is also part of the keys of
// the entries: holdfast/KIND/NAME/@/.
var kinds = map[string]func(ctx context.Context, sess *session.Session, name, owner string) (hold, error){
	"lock": func(ctx context.Context, sess *session.Session, name, owner string) (hold, error) {
		return locker.NewMutex(sess, name).With(locker.Options{Owner: owner}).Lock(ctx)
	},
	"election": func(ctx context.Context, sess *session.Session, name, owner string) (hold, error) {
		return election.New(sess, name).With(election.Options{Value: owner}).Campaign(ctx)
	},
}

// release ends a lock or a term.
func release(ctx context.Context, h hold) error {
	if lk, ok := h.(*locker.Lock); ok {
		return lk.Unlock(ctx)
	}
	return h.(*election.Term).Resign(ctx)
}

// pausedAfterCheck skips Check, as if the process had been paused between Check and
// the write.
type pausedAfterCheck struct{ fencing.Holder }

func (pausedAfterCheck) Check() error { return nil }
