package session_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/session"
)

// renewalDue is when a renewal and its proof are sent: after three eighths of the trusted 13.5 s.
const renewalDue = 13500 * time.Millisecond * 3 / 8

func TestRenewalCountsFromTheEarlierOfBothSends(t *testing.T) {
	for _, hung := range []string{"LeaseKeepAlive", "Range"} {
		start(t, func(t *testing.T, c *cluster) {
			opened := time.Now()
			l := await(t, c.open(t, session.Options{}))
			c.hang(hung)
			time.Sleep(renewalDue + 3*time.Second)
			c.heal()
			if err := l.AwaitConnected(t.Context()); err != nil {
				t.Fatal(err)
			}
			if sent := time.Since(opened) - unconfirmed(l); sent != renewalDue {
				t.Errorf("%s hung: the renewal counts from %v, want %v", hung, sent, renewalDue)
			}
		})
	}
}

// The leader is deposed after it served the proof and before it acknowledges the renewal. Its successor gives the lease
// its full TTL, so the renewal counts from the proof, and none after it does.
func TestRenewalAcknowledgedByALeaderThatLedAtTheProofCounts(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		opened, events := time.Now(), newRecorder()
		sess := c.open(t, session.Options{StayLost: true, OnStateChange: events.record})
		c.link.Plan(func(call etcdfake.Call) etcdfake.Fate {
			if call.Method == "LeaseKeepAlive" {
				return etcdfake.Fate{Request: time.Second}
			}
			return etcdfake.Fate{}
		})
		time.Sleep(renewalDue + 500*time.Millisecond)
		c.ChangeLeader(time.Hour)
		expires := c.Expires(sess.Lease())
		events.next(t, holdfast.Suspended)
		events.next(t, holdfast.Lost)
		if trusted := time.Since(opened); trusted != renewalDue+13500*time.Millisecond || !time.Now().Before(expires) {
			t.Errorf("trusted for %v, %v before the lease expires", trusted, time.Until(expires))
		}
	})
}

// The first copy of each request hangs, the second is answered late, and others are sent meanwhile. The renewal
// was carried out after the second was sent, and perhaps before the third.
func TestRenewalCountsFromTheCopyThatWasAnswered(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		var mu sync.Mutex // protects sent
		sent := map[string][]time.Duration{}
		opened := time.Now()
		l := await(t, c.open(t, session.Options{}))
		c.link.Plan(func(call etcdfake.Call) etcdfake.Fate {
			mu.Lock()
			defer mu.Unlock()
			sent[call.Method] = append(sent[call.Method], time.Since(opened))
			if len(sent[call.Method]) == 2 {
				return etcdfake.Fate{Reply: time.Second}
			}
			return etcdfake.Fate{LoseRequest: true, Silent: true}
		})
		time.Sleep(renewalDue)
		for unconfirmed(l) >= renewalDue {
			time.Sleep(time.Millisecond)
		}
		from := time.Since(opened) - unconfirmed(l)
		mu.Lock()
		defer mu.Unlock()
		renewals, reads := sent["LeaseKeepAlive"], sent["Range"]
		if len(renewals) < 3 || len(reads) < 3 {
			t.Fatalf("renewals sent at %v, reads at %v; want three copies of each", renewals, reads)
		}
		if from != min(renewals[1], reads[1]) {
			t.Errorf("renewals sent at %v, reads at %v; counts from %v, want the second", renewals, reads, from)
		}
	})
}

func TestAcknowledgementIsKeptUntilItsProofIsAnswered(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events := newRecorder()
		sess := c.open(t, session.Options{OnStateChange: events.record})
		c.hang("Range")
		time.Sleep(12 * time.Second) // the renewal was sent after 5.06 s; the lease is given up after 13.5 s
		if n := c.count("LeaseKeepAlive"); n != 1 {
			t.Errorf("%d renewals, want one: it was acknowledged", n)
		}
		c.heal()
		events.next(t, holdfast.Suspended)
		events.next(t, holdfast.Connected)
		// It counts from when it was sent, so the next one is due at once.
		synctest.Wait()
		if n, left := c.count("LeaseKeepAlive"), sess.Remaining(); n != 2 || left < 13*time.Second {
			t.Errorf("%d renewals, trusted for %v", n, left)
		}
	})
}

func TestAcknowledgementOfAnotherTermIsDropped(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		sess := c.open(t, session.Options{})
		c.hang("Range")
		time.Sleep(6 * time.Second)
		c.ChangeLeader(0)
		c.heal()
		time.Sleep(2 * time.Second)
		if n := c.count("LeaseKeepAlive"); n != 2 || sess.Check() != nil {
			t.Errorf("%d renewals, want a second one at the new term; Check: %v", n, sess.Check())
		}
	})
}

func TestProofOfAnEarlierTermIsDropped(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		sess := c.open(t, session.Options{})
		c.hang("LeaseKeepAlive")
		time.Sleep(renewalDue + 900*time.Millisecond) // a copy is sent after 1 s
		c.ChangeLeader(0)
		before := c.count("Range")
		c.heal()
		time.Sleep(2 * time.Second)
		unconfirmed := unconfirmed(await(t, sess))
		if n := c.count("Range") - before; n != 1 || sess.Check() != nil || unconfirmed > 2*time.Second {
			t.Errorf("%d reads, want one at the new term; Check: %v, unconfirmed for %v", n, sess.Check(), unconfirmed)
		}
	})
}

// While etcd refuses everything at once, a session whose lease is lost sends few requests. etcd's client alone would
// repeat reads and revocations forty times a second.
func TestRequestsOfALostSessionArePaced(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events := newRecorder()
		c.open(t, session.Options{TTL: 2 * time.Second, OnStateChange: events.record})
		c.refuse(codes.Unavailable)
		events.next(t, holdfast.Suspended)
		events.next(t, holdfast.Lost)
		if n, m := c.count("LeaseKeepAlive"), c.count("Range"); m > n+2 {
			t.Errorf("%d reads for %d renewals", m, n)
		}
		time.Sleep(30 * time.Second)
		for method, most := range map[string]int{"LeaseRevoke": 90, "LeaseGrant": 2 * 90} {
			if n := c.count(method); n > most {
				t.Errorf("%s sent %d times in 30 s", method, n)
			}
		}
	})
}
