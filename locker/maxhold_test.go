package locker_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// A hold may end while it is still being made; -race says whether the two know
// of each other.
func TestHoldThatEndsAsItBegins(t *testing.T) {
	srv := etcdfake.New(nil)
	t.Cleanup(srv.Close)
	mu := locker.NewMutex(open(t, srv.Client(), session.Options{}), "x").With(locker.Options{MaxHold: 1})
	for range 300 {
		<-mustLock(t, mu).Done()
	}
}
