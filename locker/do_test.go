package locker_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
)

func TestDoDoesNotFailFinishedWorkForALeaseThatExpiresDuringTheRelease(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		err := locker.NewMutex(p.sess, "x").Do(t.Context(), func(context.Context, *locker.Lock) error {
			p.link.BlackHole()
			return nil
		})
		if err != nil || !errors.Is(p.sess.Check(), holdfast.ErrLost) {
			t.Errorf("Do: %v, the session: %v", err, p.sess.Check())
		}
	})
}
