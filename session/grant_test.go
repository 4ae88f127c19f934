package session_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
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

// A proxy passes the Grants on and answers Canceled. Etcd's client would send each again with the same ID, and etcd
// refuses that: the lease exists.
func TestGrantThatAProxyRefusesIsRepeatedWithAnotherID(t *testing.T) {
	for _, code := range []codes.Code{codes.Canceled, codes.DeadlineExceeded} {
		start(t, func(t *testing.T, c *cluster) {
			cli, _ := c.connect(t, plain())
			var mu sync.Mutex
			ids := make(map[int64]bool)
			c.link.Plan(func(call etcdfake.Call) (f etcdfake.Fate) {
				r, ok := call.Request.(*pb.LeaseGrantRequest)
				if !ok {
					return f
				}
				mu.Lock()
				defer mu.Unlock()
				if ids[r.ID] {
					t.Errorf("%v: two Grants of lease %x", code, r.ID)
				}
				if ids[r.ID] = true; len(ids) <= 2 {
					f = etcdfake.Fate{LoseReply: true, Code: code}
				}
				return f
			})
			if err := c.openOn(t, cli, session.Options{}).Close(t.Context()); err != nil {
				t.Errorf("%v: %v", code, err)
			}
		})
	}
}

// A deposed leader acknowledges the renewal that goes beside the put of the session key.
func TestRenewalBesideThePutOfAnotherTermDoesNotCount(t *testing.T) {
	for deposed, want := range map[time.Duration]time.Duration{0: 4 * time.Second, time.Hour: 0} {
		start(t, func(t *testing.T, c *cluster) {
			opened := time.Now()
			c.delay(2*time.Second, 2*time.Second)
			time.AfterFunc(3*time.Second, func() { c.ChangeLeader(deposed) }) // the Grant was carried out
			l := await(t, c.open(t, session.Options{}))
			if sent := time.Since(opened) - unconfirmed(l); sent != want {
				t.Errorf("a deposed leader acknowledges for %v: trusted from %v, want %v", deposed, sent, want)
			}
		})
	}
}

// A member that does not answer the renewal beside the put delays the session by an eighth of the trusted time.
func TestSessionBeginsWithoutTheRenewalBesideThePut(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		opened := time.Now()
		c.link.Plan(func(call etcdfake.Call) etcdfake.Fate {
			const half = time.Second
			return etcdfake.Fate{Request: half, Reply: half, LoseRequest: call.Method == "LeaseKeepAlive", Silent: true}
		})
		sess := c.open(t, session.Options{})
		took := time.Since(opened)
		c.heal()
		if want := 4*time.Second + 13500*time.Millisecond/8; took != want || sess.Check() != nil {
			t.Errorf("began after %v, want %v; %v", took, want, sess.Check())
		}
	})
}

// A Lease that the program has put in place of etcd's may repeat a Grant or a Revoke unnoticed. The copies harm
// nothing: etcd chooses another ID for each Grant, and a lease that is revoked twice is gone.
func TestGrantsAndRevocationsThatAreRepeatedUnnoticedHarmNothing(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		cli, _ := c.connect(t, plain())
		cli.Lease = repeating{cli.Lease}
		events := newRecorder()
		sess, err := session.New(t.Context(), cli, quiet(session.Options{OnStateChange: events.record}))
		if err != nil {
			t.Fatal(err)
		}
		if n := c.leases(t); n != 4 {
			t.Fatalf("%d leases, want two of the session and a copy of each", n)
		}
		time.Sleep(10 * time.Minute)
		if n := c.leases(t); n != 2 || sess.Check() != nil || len(events) != 0 {
			t.Errorf("%d leases, want those of the session; %v, %d events", n, sess.Check(), len(events))
		}
		if err := sess.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if n, keys := c.leases(t), c.Keys(""); n != 0 || len(keys) != 0 {
			t.Errorf("%d leases and the keys %v stand", n, keys)
		}
	})
}

// repeating is a Lease that sends each Grant and each Revoke twice, and returns the second reply.
type repeating struct{ clientv3.Lease }

func (r repeating) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	if resp, err := r.Lease.Grant(ctx, ttl); err != nil {
		return resp, err
	}
	return r.Lease.Grant(ctx, ttl)
}

func (r repeating) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	if resp, err := r.Lease.Revoke(ctx, id); err != nil {
		return resp, err
	}
	return r.Lease.Revoke(ctx, id)
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
	startWith(t, etcdfake.Options{MinTTL: 4 * time.Second}, func(t *testing.T, c *cluster) {
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
