package session_test

import (
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/session"
)

// It may have been revoked by hand, or by a leader that was paused for minutes.
func TestLossOfTheLeaseOfClaimsIsThatOfTheSessionsLease(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events := newRecorder()
		sess := c.open(t, session.Options{OnStateChange: events.record})
		for range 3 {
			l, began := await(t, sess), time.Now()
			c.Revoke(l.Claims)
			events.next(t, holdfast.Lost)
			if took := time.Since(began); took > 101*time.Second { // the renewal finds it
				t.Errorf("told after %v", took)
			}
			if lost := l.Lost(); lost.Cause != holdfast.CauseRevoked {
				t.Errorf("%v", lost)
			}
			events.next(t, holdfast.Connected)
			if next := await(t, sess); next == l || next.Claims == l.Claims || c.Expires(next.Claims).IsZero() {
				t.Errorf("claims on %x, before on %x", next.Claims, l.Claims)
			}
			time.Sleep(2 * time.Second)
			if !c.Expires(l.ID()).IsZero() {
				t.Errorf("the lost lease stands a drift margin later")
			}
		}
	})
}

// A request that named both leases was refused.
func TestLeaseThatEtcdDoesNotKnowIsLost(t *testing.T) {
	for name, prepare := range map[string]func(c *cluster, l *lease.Lease){
		"revoked":             func(c *cluster, l *lease.Lease) { c.Revoke(l.ID()) },
		"its claims' revoked": func(c *cluster, l *lease.Lease) { c.Revoke(l.Claims) },
		"the read of the cause is not answered": func(c *cluster, l *lease.Lease) {
			c.Revoke(l.Claims)
			c.hang("Range")
		},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, func(t *testing.T, c *cluster) {
				cli := c.dial(t)
				cli.Watcher = silent{cli.Watcher}
				sess := c.openOn(t, cli, session.Options{StayLost: true})
				l := await(t, sess)
				prepare(c, l)
				began := time.Now()
				lease.Open(sess).LeaseGone(t.Context(), l, rpctypes.ErrLeaseNotFound)
				lost := l.Lost()
				if lost == nil || lost.Cause != holdfast.CauseRevoked {
					t.Errorf("%v", lost)
				}
				if named := strings.Contains(lost.Error(), "the lease of its claims"); named != (name == "its claims' revoked") {
					t.Errorf("%v", lost)
				}
				if took := time.Since(began); took > 250*time.Millisecond {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}
