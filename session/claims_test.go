package session_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/session"
)

// leaseOf returns the lease that a request is about; of a Grant for claims, by its TTL, that is clientv3.NoLease.
func leaseOf(call etcdfake.Call) (id clientv3.LeaseID, ok bool) {
	switch r := call.Request.(type) {
	case *pb.LeaseGrantRequest:
		return clientv3.NoLease, r.TTL >= 300
	case *pb.LeaseKeepAliveRequest:
		return clientv3.LeaseID(r.ID), true
	case *pb.LeaseRevokeRequest:
		return clientv3.LeaseID(r.ID), true
	}
	return 0, false
}

const forClaims = clientv3.NoLease // of leaseOf

// failOn has requests of a method about one lease fail until heal.
func (c *cluster) failOn(fate etcdfake.Fate, method string, id clientv3.LeaseID) {
	c.link.Plan(func(call etcdfake.Call) etcdfake.Fate {
		if about, ok := leaseOf(call); ok && about == id && call.Method == method {
			return fate
		}
		return etcdfake.Fate{}
	})
}

var (
	unanswered = etcdfake.Fate{LoseRequest: true, Silent: true}
	denial     = etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied}
	noLeader   = etcdfake.Fate{LoseRequest: true, Code: codes.Unavailable}
)

// requests are those about leases, such as "LeaseRevoke 5a".
type requests struct {
	mu   sync.Mutex // protects sent
	sent []string
}

// record records the requests about leases from now on, until heal. The fate of each is f's; nil: it arrives.
func (c *cluster) record(f func(etcdfake.Call) etcdfake.Fate) *requests {
	r := &requests{}
	c.link.Plan(func(call etcdfake.Call) etcdfake.Fate {
		if id, ok := leaseOf(call); ok {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.sent = append(r.sent, fmt.Sprintf("%s %x", call.Method, int64(id)))
		}
		if f == nil {
			return etcdfake.Fate{}
		}
		return f(call)
	})
	return r
}

func (r *requests) of(method string, id clientv3.LeaseID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	want, n := fmt.Sprintf("%s %x", method, int64(id)), 0
	for _, sent := range r.sent {
		if sent == want {
			n++
		}
	}
	return n
}

// never is a jitter: the lease of claims is renewed after exactly a third of its TTL.
func never() float64 { return 0 }

func TestSessionBeginsWithBothLeasesAtOnce(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		time.Second: 300 * time.Second, 15 * time.Second: 300 * time.Second, 60 * time.Second: 1200 * time.Second,
	} {
		start(t, func(t *testing.T, c *cluster) {
			cli := c.dial(t)
			c.link.Delay(50 * time.Millisecond)
			began := time.Now()
			sess := c.openOn(t, cli, session.Options{TTL: ttl})
			// The Grant, and the put of the session key.
			if took := time.Since(began); took != 200*time.Millisecond {
				t.Errorf("TTL %v: began after %v, want two round trips", ttl, took)
			}
			claims := await(t, sess).Claims
			if got := c.Expires(claims).Sub(began).Round(time.Second); claims == sess.Lease() || got != want {
				t.Errorf("TTL %v: lease %x, claims %x, which last %v, want %v", ttl, sess.Lease(), claims, got, want)
			}
		})
	}
}

func TestSessionBeginsWithTheSlowerOfItsGrants(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		cli := c.dial(t)
		c.failOn(etcdfake.Fate{Reply: 200 * time.Millisecond}, "LeaseGrant", forClaims)
		began := time.Now()
		sess := c.openOn(t, cli, session.Options{})
		if took := time.Since(began); took != 200*time.Millisecond || await(t, sess).Claims == clientv3.NoLease {
			t.Errorf("began after %v with claims on %x", took, await(t, sess).Claims)
		}
	})
}

// etcd refuses the session's own lease, and a member hangs that was asked for the one of its claims.
func TestNewDoesNotWaitForClaimsItCannotUse(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		c.link.Plan(func(call etcdfake.Call) etcdfake.Fate {
			if _, isForClaims := leaseOf(call); isForClaims {
				return unanswered
			}
			return denial
		})
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := session.New(ctx, c.dial(t), quiet(session.Options{}))
		if etcderr.Classify(err) != etcderr.Unauthorized || time.Since(began) > time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// No Grant of claims is answered for a while. The lease that waits for one is not renewed: another one follows it.
func TestSessionBeginsWithALeaseThatIsTrusted(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		cli := c.dial(t)
		c.failOn(unanswered, "LeaseGrant", forClaims)
		time.AfterFunc(30*time.Second, c.heal)
		events := newRecorder()
		sess := c.openOn(t, cli, session.Options{OnStateChange: events.record})
		if err := sess.Check(); err != nil || len(events) > 0 {
			t.Errorf("%v, after %d changes of its state", err, len(events))
		}
	})
}

// What etcd refuses for good is told, though the claims have no reply either.
func TestNewTellsTheRefusalOfItsKeyAndNotThatClaimsHang(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		cli := c.dial(t)
		kv := &denied{KV: cli.KV}
		kv.denied.Store(true)
		cli.KV = kv
		c.failOn(unanswered, "LeaseGrant", forClaims)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := session.New(ctx, cli, quiet(session.Options{}))
		if !errors.Is(err, rpctypes.ErrPermissionDenied) || ctx.Err() != nil {
			t.Errorf("%v", err)
		}
	})
}

func TestSessionNeedsBothLeases(t *testing.T) {
	for name, fate := range map[string]etcdfake.Fate{"refused": noLeader, "unanswered": unanswered} {
		t.Run(name, func(t *testing.T) {
			start(t, func(t *testing.T, c *cluster) {
				cli := c.dial(t)
				c.failOn(fate, "LeaseGrant", forClaims)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				o := session.Options{Clock: session.MonotonicClock(), Logger: slog.New(slog.DiscardHandler)}
				_, err := session.New(ctx, cli, o)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v", err)
				}
				time.Sleep(16 * time.Second)
				if keys := c.Keys("holdfast/session/"); len(keys) != 0 {
					t.Errorf("%d session keys stand", len(keys))
				}
				c.heal()
				if claims := await(t, c.openOn(t, cli, session.Options{})).Claims; c.Expires(claims).IsZero() {
					t.Errorf("claims on %x", claims)
				}
			})
		})
	}
}

// Nothing is revoked then: a revocation would wait for its reply beyond ctx.
func TestNewEndsWithItsContextAlthoughOneLeaseIsGranted(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		cli := c.dial(t)
		c.link.Plan(func(call etcdfake.Call) etcdfake.Fate {
			if about, ok := leaseOf(call); ok && (about == forClaims || call.Method == "LeaseRevoke") {
				return unanswered
			}
			return etcdfake.Fate{}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := session.New(ctx, cli, session.Options{Logger: slog.New(slog.DiscardHandler)})
		if took := time.Since(began); took > 1100*time.Millisecond || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

func TestEachLeaseHasALeaseOfClaimsOfItsOwn(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events := newRecorder()
		sess := c.open(t, session.Options{OnStateChange: events.record})
		seen := map[clientv3.LeaseID]bool{await(t, sess).Claims: true}
		for range 3 {
			c.Revoke(sess.Lease())
			events.next(t, holdfast.Lost)
			events.next(t, holdfast.Connected)
			claims := await(t, sess).Claims
			if claims == clientv3.NoLease || seen[claims] {
				t.Errorf("claims on %x, before on %v", claims, seen)
			}
			seen[claims] = true
		}
	})
}

// No read proves these renewals: nothing is trusted because of them.
func TestLeaseOfClaimsIsRenewedAtAThirdOfItsTTL(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		sess := c.open(t, session.Options{Retry: backoff.Policy{Rand: never}})
		claims := await(t, sess).Claims
		sent := c.record(nil)
		time.Sleep(99 * time.Second)
		if n := sent.of("LeaseKeepAlive", claims); n != 0 {
			t.Errorf("%d renewals in 99 s", n)
		}
		reads := c.count("Range")
		time.Sleep(2 * time.Second)
		if n, m := sent.of("LeaseKeepAlive", claims), c.count("Range")-reads; n != 1 || m > 1 {
			t.Errorf("%d renewals after 101 s, and %d reads, want one at most, for the session's lease", n, m)
		}
		time.Sleep(10 * time.Minute)
		if n := sent.of("LeaseKeepAlive", claims); n != 7 || await(t, sess).Claims != claims {
			t.Errorf("%d renewals in 701 s; claims on %x, before on %x", n, await(t, sess).Claims, claims)
		}
	})
}

// Sessions that begin together would otherwise renew together.
func TestRenewalsOfLeasesOfClaimsAreSpread(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		sess := c.open(t, session.Options{Retry: backoff.Policy{Rand: func() float64 { return 1 }}})
		sent := c.record(nil)
		time.Sleep(91 * time.Second)
		if n := sent.of("LeaseKeepAlive", await(t, sess).Claims); n != 1 {
			t.Errorf("%d renewals in 91 s, want one after 90 s", n)
		}
	})
}

func TestRenewalOfALeaseOfClaimsThatFailsIsRepeated(t *testing.T) {
	for name, fate := range map[string]etcdfake.Fate{"refused": noLeader, "unanswered": unanswered} {
		t.Run(name, func(t *testing.T) {
			start(t, func(t *testing.T, c *cluster) {
				sess := c.open(t, session.Options{Retry: backoff.Policy{Rand: func() float64 { return .5 }}})
				claims := await(t, sess).Claims
				sent := c.record(func(call etcdfake.Call) etcdfake.Fate {
					if id, _ := leaseOf(call); id == claims {
						return fate
					}
					return etcdfake.Fate{}
				})
				time.Sleep(200 * time.Second)
				if n := sent.of("LeaseKeepAlive", claims); n < 8 || n > 240 {
					t.Errorf("sent %d times in 105 s", n)
				}
				c.heal()
				time.Sleep(5 * time.Second)
				if left := time.Until(c.Expires(claims)); left < 290*time.Second || await(t, sess).Claims != claims {
					t.Errorf("expires in %v; claims on %x, before on %x", left, await(t, sess).Claims, claims)
				}
			})
		})
	}
}

// Otherwise claims would outlive their session by more than the TTL of their lease.
func TestLeaseOfClaimsIsNotRenewedAfterTheLoss(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events := newRecorder()
		sess := c.open(t, session.Options{OnStateChange: events.record, Retry: backoff.Policy{Rand: never}})
		l := await(t, sess)
		time.Sleep(95 * time.Second)
		c.hang("LeaseKeepAlive", "LeaseRevoke") // its first renewal is under way when the loss comes
		events.next(t, holdfast.Suspended)
		events.next(t, holdfast.Lost)
		events.next(t, holdfast.Connected)
		sent := c.record(func(call etcdfake.Call) etcdfake.Fate {
			if call.Method == "LeaseRevoke" {
				return unanswered
			}
			return etcdfake.Fate{}
		})
		expires := c.Expires(l.Claims)
		time.Sleep(3 * time.Minute)
		if n := sent.of("LeaseKeepAlive", l.Claims); n != 0 || c.Expires(l.Claims) != expires {
			t.Errorf("%d renewals after the loss", n)
		}
	})
}

// The clock tells of the loss before any timer does, as after a pause of the process.
func TestLeaseOfClaimsIsNotRenewedAfterALossThatOnlyTheClockTells(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		clock, jump := jumping()
		sess := c.open(t, session.Options{StayLost: true, Clock: clock, Retry: backoff.Policy{Rand: never}})
		l := await(t, sess)
		sent := c.record(nil)
		time.Sleep(99900 * time.Millisecond)
		jump(14 * time.Second)
		time.Sleep(200 * time.Millisecond)
		if n := sent.of("LeaseKeepAlive", l.Claims); n != 0 || l.Lost() == nil {
			t.Errorf("%d renewals after the loss: %v", n, l.Lost())
		}
	})
}
