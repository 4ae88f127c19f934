package session_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/session"
)

func TestDoneIsClosedWhenNoLeaseWillFollow(t *testing.T) {
	for name, c := range map[string]struct {
		stayLost bool
		end      func(t *testing.T, srv *etcdfake.Server, sess *session.Session)
		done     bool
		check    error // what Check says then
	}{
		"closed": {false, func(t *testing.T, _ *etcdfake.Server, sess *session.Session) {
			if err := sess.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}, true, holdfast.ErrClosed},
		"client closed": {false, func(_ *testing.T, _ *etcdfake.Server, sess *session.Session) {
			sess.Client().Close()
		}, true, holdfast.ErrClientClosed},
		"lost, with another lease to follow": {false, revokeLease, false, nil},
		"lost and to stay so":                {true, revokeLease, true, holdfast.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				srv := newServer(t)
				sess := openOn(t, srv.Link(), session.Options{StayLost: c.stayLost})
				select {
				case <-sess.Done():
					t.Fatal("done from the start")
				default:
				}
				c.end(t, srv, sess)
				time.Sleep(time.Second)
				synctest.Wait()
				select {
				case <-sess.Done():
					if !c.done {
						t.Error("done, and another lease follows")
					}
				default:
					if c.done {
						t.Error("not done")
					}
				}
				if err := sess.Check(); !errors.Is(err, c.check) {
					t.Errorf("Check: %v, want %v", err, c.check)
				}
			})
		})
	}
}

func revokeLease(t *testing.T, srv *etcdfake.Server, sess *session.Session) {
	if !srv.Revoke(sess.Lease()) {
		t.Error("no such lease")
	}
}
