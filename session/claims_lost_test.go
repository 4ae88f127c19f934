package session_test

import (
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/session"
)

// It may have been revoked by hand, or by a leader that was paused for minutes.
func TestLossOfTheLeaseOfClaimsCostsNoLockAndAnotherOneFollows(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		logger, warned := warnings()
		events := newRecorder()
		sess := c.open(t, session.Options{OnStateChange: events.record, Logger: logger})
		l := await(t, sess)
		for i := range 3 {
			lost := l.Claims()
			c.Revoke(lost)
			c.failOn(noLeader, "LeaseGrant", forClaims)
			grants := c.count("LeaseGrant")
			time.Sleep(110 * time.Second) // the renewal finds it
			if n := c.count("LeaseGrant") - grants; l.Claims() != clientv3.NoLease || n < 5 || n > 60 {
				t.Errorf("claims on %x after %d refused Grants in 10 to 20 s", l.Claims(), n)
			}
			c.heal()
			next, err := l.AwaitClaims(t.Context())
			if err != nil || next == lost || c.Expires(next).IsZero() {
				t.Errorf("claims on %x, before on %x: %v", next, lost, err)
			}
			if n := warned(claimsLost); n != i+1 {
				t.Errorf("told %d times of %d losses", n, i+1)
			}
		}
		if l.Check() != nil || len(events) != 0 {
			t.Errorf("%v, %d events", l.Check(), len(events))
		}
	})
}

// gone has the session told that etcd has refused a request about a lease and that of its claims.
func gone(t *testing.T, sess *session.Session, l *lease.Lease, claims clientv3.LeaseID) *holdfast.LostError {
	t.Helper()
	return lease.Open(sess).LeaseGone(t.Context(), l, claims, rpctypes.ErrLeaseNotFound)
}

func TestRefusalMeantTheLeaseOfClaimsIfTheSessionKeyStands(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		logger, warned := warnings()
		sess := c.open(t, session.Options{Logger: logger})
		l := await(t, sess)
		old := l.Claims()
		c.Revoke(old)
		before := c.link.Count()
		if lost := gone(t, sess, l, old); lost != nil || l.Claims() == old {
			t.Fatalf("claims on %x, before on %x: %v", l.Claims(), old, lost)
		}
		next, err := l.AwaitClaims(t.Context())
		if err != nil || next == old || c.Expires(next).IsZero() {
			t.Fatalf("claims on %x, before on %x: %v", next, old, err)
		}
		// Other requests that named the old one are answered later.
		for range 3 {
			if lost := gone(t, sess, l, old); lost != nil || l.Claims() != next {
				t.Errorf("claims on %x, want %x: %v", l.Claims(), next, lost)
			}
		}
		if n := c.count("Range") - before["Range"]; n != 1 || l.Check() != nil || warned(claimsLost) != 1 {
			t.Errorf("%d reads, %d warnings; %v", n, warned(claimsLost), l.Check())
		}
	})
}

func TestRefusalMeantTheSessionsLeaseIfItsKeyIsGone(t *testing.T) {
	for name, prepare := range map[string]func(c *cluster, sess *session.Session, claims clientv3.LeaseID){
		"revoked": func(c *cluster, sess *session.Session, _ clientv3.LeaseID) { c.Revoke(sess.Lease()) },
		"both revoked": func(c *cluster, sess *session.Session, claims clientv3.LeaseID) {
			c.Revoke(claims)
			c.Revoke(sess.Lease())
		},
		"the read is not answered": func(c *cluster, _ *session.Session, claims clientv3.LeaseID) {
			c.Revoke(claims)
			c.hang("Range")
		},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, func(t *testing.T, c *cluster) {
				cli := c.dial(t)
				cli.Watcher = silent{cli.Watcher}
				sess := c.openOn(t, cli, session.Options{StayLost: true})
				l := await(t, sess)
				prepare(c, sess, l.Claims())
				began := time.Now()
				if lost := gone(t, sess, l, l.Claims()); lost == nil || lost.Cause != holdfast.CauseRevoked || l.Lost() != lost {
					t.Errorf("%v", lost)
				}
				if took := time.Since(began); took > 250*time.Millisecond {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

func TestRefusalThatNamedNoClaimsMeantTheSessionsLease(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		sess := c.open(t, session.Options{StayLost: true})
		l := await(t, sess)
		if lost := gone(t, sess, l, clientv3.NoLease); lost == nil || lost.Cause != holdfast.CauseRevoked {
			t.Errorf("%v", lost)
		}
	})
}

// Etcd refuses again, with a lease of claims that it has just granted, and the session key seems to stand. Without an
// end to that, callers would try for ever.
func TestSecondRefusalMeansTheSessionsLeaseUnlessTheClaimsWereRenewed(t *testing.T) {
	for _, renewed := range []bool{false, true} {
		start(t, func(t *testing.T, c *cluster) {
			sess := c.open(t, session.Options{StayLost: true})
			l := await(t, sess)
			for refusal := range 3 {
				claims, err := l.AwaitClaims(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if renewed {
					time.Sleep(101 * time.Second)
				}
				lost := gone(t, sess, l, claims)
				if wantLoss := refusal > 0 && !renewed; wantLoss != (lost != nil) || lost != l.Lost() {
					t.Fatalf("refusal %d, renewed before: %v: %v", refusal+1, renewed, lost)
				}
				if lost != nil {
					return
				}
			}
		})
	}
}
