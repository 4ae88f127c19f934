package session_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/session"
)

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
				for key, id := range map[string]clientv3.LeaseID{"entry": l.ID(), "claim": l.Claims} {
					if _, err := sess.Client().Put(t.Context(), key, "", clientv3.WithLease(id)); err != nil {
						t.Fatal(err)
					}
				}
				var hooks atomic.Int64 // StayLost: Close may run them beside those of the loss
				lease.Open(sess).BeforeRevoke(func(context.Context, *lease.Lease) {
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
				if c.Expires(l.Claims).IsZero() {
					t.Error("revoked before the margin has passed")
				}
				time.Sleep(2 * time.Millisecond)
				if !c.Expires(l.Claims).IsZero() || !c.Expires(l.ID()).IsZero() {
					t.Errorf("not revoked; %d leases", c.leases(t))
				}
			})
		})
	}
}

func TestCloseRepeatsTheRevocationOfBothLeases(t *testing.T) {
	for name, which := range map[string]func(l *lease.Lease) clientv3.LeaseID{
		"of the claims":  func(l *lease.Lease) clientv3.LeaseID { return l.Claims },
		"of the session": (*lease.Lease).ID,
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
				other := l.ID() + l.Claims - which(l)
				if n, m := sent.of("LeaseRevoke", which(l)), sent.of("LeaseRevoke", other); n < 2 || m < 1 || c.leases(t) != 0 {
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
		if _, err := sess.Client().Put(t.Context(), "claim", "", clientv3.WithLease(l.Claims)); err != nil {
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
					if id, _ := leaseOf(call); tc.own && id == l.ID() || tc.claims && id == l.Claims {
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
					stands(l.Claims, "5m0s") == c.Expires(l.Claims).IsZero() {
					t.Errorf("%v", err)
				}
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("several lines: %v", err)
				}
			})
		})
	}
}
