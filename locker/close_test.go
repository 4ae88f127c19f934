package locker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// Close is the loss of every lock that is held then. A process that ends after
// it must not take the records of that along.
func TestCloseWaitsUntilTheLossesItCausesAreRecorded(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		recorded := make(chan fencing.Record, 10)
		opts := locker.Options{Auditor: fencing.AuditFunc(func(_ context.Context, r fencing.Record) {
			if r.Event != fencing.Granted {
				time.Sleep(time.Second)
				recorded <- r
			}
		})}
		mustLock(t, locker.NewMutex(p.sess, "x").With(opts))
		mustLock(t, locker.NewMutex(p.sess, "y").With(opts))
		if err := p.sess.Close(deadline(t)); err != nil {
			t.Fatal(err)
		}
		if len(recorded) != 2 {
			t.Fatalf("%d records when Close has returned, want 2", len(recorded))
		}
		if r := <-recorded; r.Event != fencing.Lost || !errors.Is(r.Err, session.ErrClosed) {
			t.Errorf("%v: %v", r.Event, r.Err)
		}
	})
}
