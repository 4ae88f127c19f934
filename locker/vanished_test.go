package locker_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// etcd tells the rest of a lease in whole seconds, rounded down: a lease of one
// second that lives has 0 left, one that is gone -1. With the entry of one lock
// the others must not be lost.
func TestEntryDeletedOnALeaseOfOneSecondIsNoLossOfTheLease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		srv := etcdfake.New(&etcdfake.Options{MinTTL: time.Second})
		t.Cleanup(srv.Close)
		link := srv.Link()
		link.Delay(oneWay)
		sess := open(t, link.Client(), session.Options{
			TTL: time.Second, Clock: session.MonotonicClock(), Logger: slog.New(slog.DiscardHandler),
		})
		deleted, other := mustLock(t, locker.NewMutex(sess, "deleted")), mustLock(t, locker.NewMutex(sess, "other"))
		time.Sleep(3 * time.Second)
		srv.Delete(deleted.Key())
		<-deleted.Done()
		var lost *holdfast.LostError
		if err := deleted.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseEntryDeleted {
			t.Errorf("the lock whose entry was deleted: %v", err)
		}
		if err := other.Check(); err != nil {
			t.Errorf("the other lock: %v", err)
		}
	})
}
