package session_test

import (
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/session"
)

// Whatever ends the watch, it is created again, and the read after its creation finds what it missed.
func TestWatchOfTheSessionKeyIsArmedAgain(t *testing.T) {
	for name, fail := range map[string]func(c *cluster){
		"canceled": func(c *cluster) { c.CancelWatches(rpctypes.ErrNoLeader) },
		"canceled again and again": func(c *cluster) {
			for range 20 {
				c.CancelWatches(rpctypes.ErrNoLeader)
				time.Sleep(11 * time.Second)
			}
			c.CancelWatches(rpctypes.ErrNoLeader)
			time.Sleep(20 * time.Millisecond) // the pause before the next watch is short again
		},
		"compacted": func(c *cluster) {
			c.link.Cut()
			c.Put("other", "")
			c.Compact()
			c.link.Heal()
		},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, func(t *testing.T, c *cluster) {
				events := newRecorder()
				sess := c.open(t, session.Options{OnStateChange: events.record})
				fail(c)
				if name != "canceled again and again" {
					time.Sleep(2 * time.Second)
				}
				revoked := time.Now()
				c.Revoke(sess.Lease())
				lost := lossOf(t, events.next(t, holdfast.Lost))
				if time.Since(revoked) > time.Millisecond || lost.Cause != holdfast.CauseRevoked {
					t.Errorf("after %v: %v", time.Since(revoked), lost)
				}
				events.next(t, holdfast.Connected)
			})
		})
	}
}

func TestRevocationBeforeTheWatchExistsIsFoundByTheReadAfterIt(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events := newRecorder()
		sess := c.open(t, session.Options{OnStateChange: events.record})
		revoked := sess.Lease()
		c.link.Delay(50 * time.Millisecond)
		c.CancelWatches(rpctypes.ErrNoLeader)
		c.Revoke(revoked)
		start := time.Now()
		lost := lossOf(t, events.next(t, holdfast.Lost))
		if took := time.Since(start); took > 500*time.Millisecond || lost.Lease != revoked {
			t.Errorf("after %v: %v", took, lost)
		}
		events.next(t, holdfast.Connected)
	})
}

// A link on which it takes longer than the first timeout to create a watch gets one after a few attempts.
func TestWatchOfTheSessionKeyOverASlowLinkIsCreated(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events := newRecorder()
		sess := c.open(t, session.Options{OnStateChange: events.record})
		c.link.Delay(3 * time.Second / 4) // a round trip takes half as long again as the first timeout
		c.CancelWatches(rpctypes.ErrNoLeader)
		before := c.link.Count()
		time.Sleep(time.Minute)
		if n := c.link.Count()["Watch"] - before["Watch"]; n > 4 { // the end of the first one is a message, too
			t.Errorf("%d messages about watches in a minute", n)
		}
		c.Revoke(sess.Lease())
		revoked := time.Now()
		if events.next(t, holdfast.Lost); time.Since(revoked) > 3*time.Second {
			t.Errorf("told of a revoked lease after %v", time.Since(revoked))
		}
	})
}

// Whatever the reply, the watch is not created again without a pause.
func TestRefusedWatchOfTheSessionKeyIsRetriedWithPauses(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		sess := c.open(t, session.Options{})
		c.refuse(codes.Unavailable, "Watch")
		c.CancelWatches(rpctypes.ErrNoLeader)
		before := c.link.Count()
		time.Sleep(time.Minute)
		if n := c.link.Count()["Watch"] - before["Watch"]; n > 800 {
			t.Errorf("%d watches in a minute; etcd's client alone opens ten a second", n)
		}
		if sess.Check() != nil {
			t.Error(sess.Check())
		}
	})
}
