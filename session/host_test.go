package session_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/session"
)

func TestNoSessionOpensToNoHost(t *testing.T) {
	for _, sess := range []*session.Session{nil, {}} {
		if h := lease.Open(sess); h != nil {
			t.Errorf("%v", h)
		}
	}
}

// Locks remove their entries in hooks: after all holders have been told, and while the lease still exists. What was
// built on top of them ends before.
func TestHooksRunBeforeTheLeaseIsRevoked(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, c *cluster, sess *session.Session){
		"by Close": func(t *testing.T, _ *cluster, sess *session.Session) {
			if err := sess.Close(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"after a loss": func(_ *testing.T, c *cluster, _ *session.Session) {
			c.hang("LeaseKeepAlive")
			time.Sleep(15*time.Second + 100*time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, func(t *testing.T, c *cluster) {
				sess := c.open(t, session.Options{TTL: 15 * time.Second})
				held := await(t, sess)
				c.Skip(-5 * time.Second) // etcd's clock is slow: the lease still exists a margin after the loss
				var order []string
				for _, hook := range []string{"first", "second"} {
					lease.Open(sess).BeforeRevoke(func(ctx context.Context, l *lease.Lease) {
						if l != held {
							return // the next lease, closed with the test
						}
						order = append(order, hook)
						if l.Context().Err() == nil || l.Lost() == nil {
							t.Errorf("lease %x, lost: %v", l.ID(), l.Lost())
						}
						if _, err := sess.Client().Put(ctx, "x", "", clientv3.WithLease(l.ID())); err != nil {
							t.Errorf("a request of the hook: %v", err)
						}
					})
				}
				end(t, c, sess)
				synctest.Wait()
				if strings.Join(order, " ") != "second first" || !c.Expires(held.ID()).IsZero() || c.count("LeaseRevoke") != 2 {
					t.Errorf("hooks %v, expiry %v, %d revocations", order, c.Expires(held.ID()), c.count("LeaseRevoke"))
				}
			})
		})
	}
}

// What joins while the session closes, such as a lock that is granted just then, ends by itself: Close does not wait.
func TestCloseDoesNotWaitForWhatJoinsAfterItHasBegun(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		sess := c.open(t, session.Options{})
		host := lease.Open(sess)
		var done func()
		host.BeforeRevoke(func(context.Context, *lease.Lease) { done = host.Joining() })
		began := time.Now()
		if err := sess.Close(t.Context()); err != nil || time.Since(began) != 0 {
			t.Errorf("Close after %v: %v", time.Since(began), err)
		}
		done()
	})
}

func TestHookThatHangsDoesNotKeepTheLeaseFromBeingRevoked(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		sess := c.open(t, session.Options{})
		lease.Open(sess).BeforeRevoke(func(ctx context.Context, _ *lease.Lease) { <-ctx.Done() })
		began := time.Now()
		if err := sess.Close(context.Background()); err != nil || time.Since(began) != 2*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if c.leases(t) != 0 {
			t.Error("not revoked")
		}
	})
}

func TestHooksDoNotRunForALeaseThatWasRevoked(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events := newRecorder()
		sess := c.open(t, session.Options{OnStateChange: events.record})
		revoked := sess.Lease()
		lease.Open(sess).BeforeRevoke(func(_ context.Context, l *lease.Lease) {
			if l.ID() == revoked {
				t.Error("the hook ran")
			}
		})
		c.Revoke(revoked)
		events.next(t, holdfast.Lost)
		events.next(t, holdfast.Connected)
		time.Sleep(5 * time.Second)
	})
}
