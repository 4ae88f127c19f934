package session_test

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/session"
)

// The leases of the other Grants are not needed. They expire like any other.
func TestGrantThatIsNotAnsweredIsSentAgain(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		cli := c.dial(t)
		var lost atomic.Int64
		c.link.Plan(func(call etcdfake.Call) etcdfake.Fate {
			fate := etcdfake.Fate{Request: time.Millisecond, Reply: time.Millisecond}
			if r, ok := call.Request.(*pb.LeaseGrantRequest); ok && r.TTL == 15 && lost.Add(1) <= 2 {
				fate.LoseReply, fate.Silent = true, true
			}
			return fate
		})
		began := time.Now()
		sess := c.openOn(t, cli, session.Options{})
		if took := time.Since(began); took != 1004*time.Millisecond || c.count("LeaseGrant") != 3+1 {
			t.Errorf("granted after %v, by %d requests", took, c.count("LeaseGrant"))
		}
		time.Sleep(time.Minute)
		if n := c.leases(t); n != 2 || c.Expires(sess.Lease()).IsZero() || c.count("LeaseRevoke") != 0 {
			t.Errorf("%d leases, want only the two of the session; %d were revoked", n, c.count("LeaseRevoke"))
		}
		if err := errors.Join(sess.Check(), sess.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// The session itself must not let another client in before etcd would: holders have the drift margin to notice the
// loss.
func TestLostLeaseIsNotRevokedBeforeTheMarginHasPassed(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events := newRecorder()
		sess := c.open(t, session.Options{OnStateChange: events.record})
		old := sess.Lease()
		c.hang("LeaseKeepAlive") // everything else is answered
		events.next(t, holdfast.Suspended)
		events.next(t, holdfast.Lost)
		events.next(t, holdfast.Connected)
		time.Sleep(1400 * time.Millisecond)
		if c.Expires(old).IsZero() {
			t.Error("revoked within 1.4 s of the loss; the margin is 1.5 s")
		}
		time.Sleep(200 * time.Millisecond)
		if !c.Expires(old).IsZero() {
			t.Error("not revoked after the margin")
		}
	})
}

func TestLostLeaseThatMayNotBeRevokedIsLogged(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events, warned := newRecorder(), make(chan string, 10)
		c.open(t, session.Options{OnStateChange: events.record, Logger: slog.New(lineHandler(warned))})
		c.hang("LeaseKeepAlive")
		events.next(t, holdfast.Suspended)
		events.next(t, holdfast.Lost)
		c.refuse(codes.PermissionDenied, "LeaseRevoke")
		time.Sleep(2 * time.Second)
		told := 0
		for len(warned) > 0 {
			if strings.Contains(<-warned, "could not revoke a lost lease") {
				told++
			}
		}
		if told != 1 || c.count("LeaseRevoke") != 2 {
			t.Errorf("told %d times, %d revocations", told, c.count("LeaseRevoke"))
		}
	})
}

// If etcd does not answer, the lease expires, and requests would only add to its load.
func TestLostLeaseIsRevokedOnce(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events := newRecorder()
		c.open(t, session.Options{StayLost: true, OnStateChange: events.record})
		c.hang("LeaseKeepAlive", "LeaseRevoke")
		events.next(t, holdfast.Suspended)
		events.next(t, holdfast.Lost)
		time.Sleep(time.Minute)
		if n := c.count("LeaseRevoke"); n != 1 {
			t.Errorf("%d revocations, want one, of the lease of the claims", n)
		}
		c.heal()
	})
}

func TestTheTTLThatWasGrantedIsUsed(t *testing.T) {
	startWith(t, &etcdfake.Options{MinTTL: 4 * time.Second}, func(t *testing.T, c *cluster) {
		sess := c.open(t, session.Options{TTL: 2 * time.Second})
		if r := sess.Remaining(); r != 3600*time.Millisecond {
			t.Errorf("trusted for %v, want 4 s less a tenth", r)
		}
	})
}

func TestLongLeasesAreTrustedForFiveMinutesAtMost(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		sess := c.open(t, session.Options{TTL: 600 * time.Second})
		if r := sess.Remaining(); r != 240*time.Second {
			t.Errorf("trusted for %v, want 300 s less 60 s", r)
		}
	})
}
