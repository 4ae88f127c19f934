package session_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/session"
)

func TestNewEndsWithItsContextWhenNothingAnswers(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		cli := c.dial(t)
		c.hang()
		ctx, cancel := context.WithTimeout(t.Context(), 17*time.Second)
		defer cancel()
		began := time.Now()
		_, err := session.New(ctx, cli, quiet(session.Options{}))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 17*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if n := c.count("LeaseGrant"); n > 2*14 { // at most eight of each lease in 12 s
			t.Errorf("%d grants in 17 s", n)
		}
	})
}

func TestNewOnAFullStoreSaysWhatToDo(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		cli := c.dial(t)
		kv := &denied{KV: cli.KV, with: rpctypes.ErrNoSpace}
		kv.denied.Store(true)
		cli.KV = kv
		_, err := session.New(t.Context(), cli, quiet(session.Options{}))
		if !errors.Is(err, rpctypes.ErrNoSpace) || !strings.Contains(err.Error(), "holdfast check") {
			t.Errorf("%v", err)
		}
	})
}

func TestNothingSpinsWhileNothingAnswers(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		sess := c.open(t, session.Options{})
		before := c.link.Count()
		c.hang()
		time.Sleep(10 * time.Minute)
		if sess.State() != holdfast.Lost {
			t.Errorf("state %v", sess.State())
		}
		for method, most := range map[string]int{"LeaseKeepAlive": 8, "LeaseGrant": 2 * 440, "LeaseRevoke": 440} {
			if n := c.count(method) - before[method]; n > most {
				t.Errorf("%s sent %d times in ten minutes, want at most %d", method, n, most)
			}
		}
	})
}

func TestStayLostGetsNoNewLease(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		sess := c.open(t, session.Options{StayLost: true})
		id := sess.Lease()
		c.Revoke(id)
		time.Sleep(time.Minute)
		if _, err := lease.Open(sess).Await(t.Context()); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Await: %v", err)
		}
		if sess.State() != holdfast.Lost || sess.Lease() != id || c.count("LeaseGrant") != 2 {
			t.Errorf("state %v, lease %x, %d grants", sess.State(), sess.Lease(), c.count("LeaseGrant"))
		}
	})
}

func TestDoneIsClosedWhenNoLeaseWillFollow(t *testing.T) {
	revoke := func(t *testing.T, c *cluster, sess *session.Session) {
		if !c.Revoke(sess.Lease()) {
			t.Error("no such lease")
		}
	}
	for name, tc := range map[string]struct {
		stayLost bool
		end      func(t *testing.T, c *cluster, sess *session.Session)
		done     bool
		check    error // of Check after the end
	}{
		"closed": {false, func(t *testing.T, _ *cluster, sess *session.Session) {
			if err := sess.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}, true, holdfast.ErrClosed},
		"client closed": {false, func(_ *testing.T, _ *cluster, sess *session.Session) {
			_ = sess.Client().Close()
		}, true, holdfast.ErrClientClosed},
		"lost, another lease follows": {false, revoke, false, nil},
		"lost under StayLost":         {true, revoke, true, holdfast.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, func(t *testing.T, c *cluster) {
				sess := c.open(t, session.Options{StayLost: tc.stayLost})
				isDone := func() bool {
					select {
					case <-sess.Done():
						return true
					default:
						return false
					}
				}
				if isDone() {
					t.Fatal("done from the start")
				}
				tc.end(t, c, sess)
				time.Sleep(time.Second)
				synctest.Wait()
				if isDone() != tc.done {
					t.Errorf("done: %v, want %v", isDone(), tc.done)
				}
				if err := sess.Check(); !errors.Is(err, tc.check) {
					t.Errorf("Check: %v, want %v", err, tc.check)
				}
			})
		})
	}
}

func TestCheckAllocatesNothing(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		sess := c.open(t, session.Options{Clock: session.SystemClock()})
		if n := testing.AllocsPerRun(100, func() { _ = sess.Check() }); n != 0 {
			t.Errorf("%v allocations per Check", n)
		}
	})
}
