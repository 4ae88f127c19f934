package session_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
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

// warnings returns a logger, and a function that counts the lines so far that have a text.
func warnings() (*slog.Logger, func(text string) int) {
	lines := make(chan string, 1000)
	var all []string
	return slog.New(lineHandler(lines)), func(text string) (n int) {
		for len(lines) > 0 {
			all = append(all, <-lines)
		}
		for _, line := range all {
			if strings.Contains(line, text) {
				n++
			}
		}
		return n
	}
}

const claimsLost = "lost the lease of a session's claims"

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
			claims := await(t, sess).Claims()
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
		if took := time.Since(began); took != 200*time.Millisecond || await(t, sess).Claims() == clientv3.NoLease {
			t.Errorf("began after %v with claims on %x", took, await(t, sess).Claims())
		}
	})
}

// A put that needs claims waits for their lease; the session does not.
func TestSessionBeginsWithoutALeaseOfClaimsThatIsRefused(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		cli := c.dial(t)
		logger, warned := warnings()
		c.failOn(noLeader, "LeaseGrant", forClaims)
		l := await(t, c.openOn(t, cli, session.Options{Logger: logger}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if id, err := l.AwaitClaims(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("claims on %x: %v", id, err)
		}
		c.heal()
		if id, err := l.AwaitClaims(t.Context()); err != nil || c.Expires(id).IsZero() || id != l.Claims() {
			t.Errorf("claims on %x, now %x: %v", id, l.Claims(), err)
		}
		if n := warned(claimsLost); n != 0 {
			t.Errorf("told of %d losses; none was lost", n)
		}
	})
}

// The session's lease would otherwise be suspended before anything renews it.
func TestSessionWaitsForTheLeaseOfClaimsUntilItsOwnMustBeRenewed(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		cli := c.dial(t)
		c.failOn(unanswered, "LeaseGrant", forClaims)
		began, events := time.Now(), newRecorder()
		sess := c.openOn(t, cli, session.Options{OnStateChange: events.record})
		if took := time.Since(began); took != renewalDue || await(t, sess).Claims() != clientv3.NoLease {
			t.Errorf("began after %v with claims on %x", took, await(t, sess).Claims())
		}
		c.heal()
		if id, err := await(t, sess).AwaitClaims(t.Context()); err != nil || c.Expires(id).IsZero() || len(events) > 0 {
			t.Errorf("claims on %x, %d events: %v", id, len(events), err)
		}
	})
}

func TestEachLeaseHasALeaseOfClaimsOfItsOwn(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events := newRecorder()
		sess := c.open(t, session.Options{OnStateChange: events.record})
		seen := map[clientv3.LeaseID]bool{await(t, sess).Claims(): true}
		for range 3 {
			c.Revoke(sess.Lease())
			events.next(t, holdfast.Lost)
			events.next(t, holdfast.Connected)
			claims := await(t, sess).Claims()
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
		claims := await(t, sess).Claims()
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
		if n := sent.of("LeaseKeepAlive", claims); n != 7 || await(t, sess).Claims() != claims {
			t.Errorf("%d renewals in 701 s; claims on %x, before on %x", n, await(t, sess).Claims(), claims)
		}
	})
}

// Sessions that begin together would otherwise renew together.
func TestRenewalsOfLeasesOfClaimsAreSpread(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		sess := c.open(t, session.Options{Retry: backoff.Policy{Rand: func() float64 { return 1 }}})
		sent := c.record(nil)
		time.Sleep(91 * time.Second)
		if n := sent.of("LeaseKeepAlive", await(t, sess).Claims()); n != 1 {
			t.Errorf("%d renewals in 91 s, want one after 90 s", n)
		}
	})
}

func TestRenewalOfALeaseOfClaimsThatFailsIsRepeated(t *testing.T) {
	for name, fate := range map[string]etcdfake.Fate{"refused": noLeader, "unanswered": unanswered} {
		t.Run(name, func(t *testing.T) {
			start(t, func(t *testing.T, c *cluster) {
				sess := c.open(t, session.Options{Retry: backoff.Policy{Rand: func() float64 { return .5 }}})
				claims := await(t, sess).Claims()
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
				if left := time.Until(c.Expires(claims)); left < 290*time.Second || await(t, sess).Claims() != claims {
					t.Errorf("expires in %v; claims on %x, before on %x", left, await(t, sess).Claims(), claims)
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
		expires := c.Expires(l.Claims())
		time.Sleep(3 * time.Minute)
		if n := sent.of("LeaseKeepAlive", l.Claims()); n != 0 || c.Expires(l.Claims()) != expires {
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
		if n := sent.of("LeaseKeepAlive", l.Claims()); n != 0 || l.Lost() == nil {
			t.Errorf("%d renewals after the loss: %v", n, l.Lost())
		}
	})
}

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
	return lease.Open(sess.Ref()).LeaseGone(t.Context(), l, claims, rpctypes.ErrLeaseNotFound)
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

// In the other order those behind would see claims without entries, as after a crash.
func TestLeaseOfClaimsIsRevokedBeforeTheSessions(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, c *cluster, sess *session.Session){
		"by Close": func(t *testing.T, _ *cluster, sess *session.Session) {
			if err := sess.Close(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"after a loss by the clock": func(_ *testing.T, c *cluster, sess *session.Session) {
			c.failOn(unanswered, "LeaseKeepAlive", sess.Lease())
			time.Sleep(13500*time.Millisecond + 1501*time.Millisecond)
		},
		"by Close after that": func(t *testing.T, c *cluster, sess *session.Session) {
			c.failOn(unanswered, "LeaseKeepAlive", sess.Lease())
			time.Sleep(13501 * time.Millisecond)
			if err := sess.Close(t.Context()); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, func(t *testing.T, c *cluster) {
				sess := c.open(t, session.Options{StayLost: true})
				l := await(t, sess)
				c.Skip(-5 * time.Second) // etcd's clock is slow: the lease outlives its loss
				for key, id := range map[string]clientv3.LeaseID{"entry": l.ID(), "claim": l.Claims()} {
					if _, err := sess.Client().Put(t.Context(), key, "", clientv3.WithLease(id)); err != nil {
						t.Fatal(err)
					}
				}
				var hooks atomic.Int64 // StayLost: Close may run them beside those of the loss
				lease.Open(sess.Ref()).BeforeRevoke(func(context.Context, *lease.Lease) {
					if hooks.Add(1) == 1 && (len(c.Keys("claim")) != 1 || len(c.Keys("entry")) != 1) {
						t.Errorf("keys when the hook runs: %v", c.Keys(""))
					}
				})
				var deleted []string
				watch := c.Link().Client().Watch(t.Context(), "", clientv3.WithPrefix())
				end(t, c, sess)
				synctest.Wait()
				for done := false; !done; {
					select {
					case resp := <-watch:
						for _, ev := range resp.Events {
							if key := string(ev.Kv.Key); key == "entry" || key == "claim" {
								deleted = append(deleted, key)
							}
						}
					default:
						done = true
					}
				}
				if !slices.Equal(deleted, []string{"claim", "entry"}) {
					t.Errorf("deleted: %v", deleted)
				}
			})
		})
	}
}

// Once holders have had a margin to notice the loss, claims would only delay those behind.
func TestLeaseOfClaimsIsRevokedAMarginAfterAnyLoss(t *testing.T) {
	for name, lose := range map[string]func(c *cluster, sess *session.Session){
		"revoked": func(c *cluster, sess *session.Session) { c.Revoke(sess.Lease()) },
		"expired": func(c *cluster, sess *session.Session) { c.failOn(unanswered, "LeaseKeepAlive", sess.Lease()) },
		"session key deleted": func(c *cluster, sess *session.Session) {
			c.hang("Put")
			c.Delete(keyOf(sess))
		},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, func(t *testing.T, c *cluster) {
				sess := c.open(t, session.Options{StayLost: true})
				l := await(t, sess)
				lose(c, sess)
				<-l.Context().Done()
				time.Sleep(l.Margin() - time.Millisecond)
				if c.Expires(l.Claims()).IsZero() {
					t.Error("revoked before the margin has passed")
				}
				time.Sleep(2 * time.Millisecond)
				if !c.Expires(l.Claims()).IsZero() || !c.Expires(l.ID()).IsZero() {
					t.Errorf("not revoked; %d leases", c.leases(t))
				}
			})
		})
	}
}

func TestCloseRepeatsTheRevocationOfBothLeases(t *testing.T) {
	for name, which := range map[string]func(l *lease.Lease) clientv3.LeaseID{
		"of the claims": (*lease.Lease).Claims, "of the session": (*lease.Lease).ID,
	} {
		t.Run(name, func(t *testing.T) {
			start(t, func(t *testing.T, c *cluster) {
				sess := c.open(t, session.Options{})
				l := await(t, sess)
				began := time.Now()
				sent := c.record(func(call etcdfake.Call) etcdfake.Fate {
					if id, _ := leaseOf(call); id == which(l) && time.Since(began) < 2*time.Second {
						return noLeader
					}
					return etcdfake.Fate{}
				})
				if err := sess.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if last := fmt.Sprintf("LeaseRevoke %x", int64(l.ID())); sent.sent[len(sent.sent)-1] != last {
					t.Errorf("the session's lease is not revoked last: %v", sent.sent)
				}
				other := l.ID() + l.Claims() - which(l)
				if n, m := sent.of("LeaseRevoke", which(l)), sent.of("LeaseRevoke", other); n < 2 || m != 1 || c.leases(t) != 0 {
					t.Errorf("revoked %d times, the other one %d times; %d leases left", n, m, c.leases(t))
				}
			})
		})
	}
}

// The first one to want such a name meanwhile waits for the lock delay.
func TestClaimsOfASessionThatClosesCutOffEndWithTheirLease(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		sess := c.open(t, session.Options{})
		l := await(t, sess)
		if _, err := sess.Client().Put(t.Context(), "claim", "", clientv3.WithLease(l.Claims())); err != nil {
			t.Fatal(err)
		}
		c.hang()
		closed := time.Now()
		if err := sess.Close(t.Context()); !errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("%v", err)
		}
		for len(c.Keys("")) > 0 {
			time.Sleep(time.Second)
		}
		if took := time.Since(closed); took < 299*time.Second || took > 301*time.Second {
			t.Errorf("the claim went %v after Close", took)
		}
	})
}

// Etcd deletes what the lease that was not revoked has when it expires: entries within the TTL, claims within minutes.
func TestErrorOfCloseNamesTheLeaseThatStands(t *testing.T) {
	for name, tc := range map[string]struct {
		fate        etcdfake.Fate
		own, claims bool // whose revocation has that fate
		left        int  // leases
	}{
		"the session's is refused": {denial, true, false, 1},
		"the claims' is refused":   {denial, false, true, 1},
		"both are refused":         {denial, true, true, 2},
		"the session's hangs":      {unanswered, true, false, 1},
		"the claims' hangs":        {unanswered, false, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, func(t *testing.T, c *cluster) {
				sess := c.open(t, session.Options{})
				l := await(t, sess)
				c.record(func(call etcdfake.Call) etcdfake.Fate {
					if id, _ := leaseOf(call); tc.own && id == l.ID() || tc.claims && id == l.Claims() {
						return tc.fate
					}
					return etcdfake.Fate{}
				})
				err := sess.Close(t.Context())
				if err == nil || errors.Is(err, holdfast.ErrOutcomeUnknown) != (tc.fate == unanswered) || c.leases(t) != tc.left {
					t.Fatalf("%d leases left: %v", c.leases(t), err)
				}
				stands := func(id clientv3.LeaseID, ttl string) bool {
					return strings.Contains(err.Error(), fmt.Sprintf("lease %x", int64(id))) && strings.Contains(err.Error(), ttl)
				}
				if stands(l.ID(), "15s") == c.Expires(l.ID()).IsZero() ||
					stands(l.Claims(), "5m0s") == c.Expires(l.Claims()).IsZero() {
					t.Errorf("%v", err)
				}
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("several lines: %v", err)
				}
			})
		})
	}
}
