package session_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// Invariant 1. Requests and replies take random times, and at a random moment the network goes silent. The session
// must report the loss before the server expires the lease. A deadline counted from the receipt of a reply fails
// here, and so does one without the drift margin.
func TestLossIsToldBeforeTheLeaseExpires(t *testing.T) {
	seeds := uint64(200)
	if bubble.Race {
		seeds = 50 // CI draws all of them without the race detector
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			start(t, func(t *testing.T, c *cluster) {
				r := rand.New(rand.NewPCG(seed, 1))
				below := func(most time.Duration) time.Duration { return time.Duration(r.Int64N(int64(most))) }
				sess := c.open(t, session.Options{StayLost: true})
				c.delay(below(time.Second), below(time.Second))
				time.Sleep(20*time.Second + below(20*time.Second))
				c.link.BlackHole()
				l := await(t, sess)
				expires := c.Expires(l.ID())
				<-l.Context().Done()
				if margin := time.Until(expires); margin < 1500*time.Millisecond {
					t.Errorf("reported %v before the expiry, want at least the drift margin of 1.5 s", margin)
				}
				var lost *holdfast.LostError
				if err := sess.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseExpired {
					t.Errorf("Check: %v", err)
				}
			})
		})
	}
}

// Invariant 2, and the new lease.
func TestLostIsForeverAndANewLeaseFollows(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events := newRecorder()
		sess := c.open(t, session.Options{OnStateChange: events.record})
		old := await(t, sess)
		c.hang()
		events.next(t, holdfast.Suspended)
		events.next(t, holdfast.Lost)
		c.heal()
		ev := events.next(t, holdfast.Connected)
		if ev.Reconnected() || ev.Lease == old.ID() || sess.Lease() != ev.Lease {
			t.Errorf("event %+v, old lease %x", ev, old.ID())
		}
		if err := sess.Check(); err != nil {
			t.Errorf("the session did not recover: %v", err)
		}
		time.Sleep(time.Minute)
		if err := old.Check(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("the old lease came back: %v", err)
		}
		if !c.Expires(old.ID()).IsZero() || c.count("LeaseRevoke") == 0 {
			t.Error("the old lease was not revoked")
		}
		if sess.Lease() != ev.Lease || c.leases(t) != 2 {
			t.Errorf("the new lease %x did not last: %x, %d leases", ev.Lease, sess.Lease(), c.leases(t))
		}
	})
}

func TestMachineSuspendIsSeenByTheFirstCheck(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		clock, jump := jumping()
		sess := c.open(t, session.Options{StayLost: true, Clock: clock})
		jump(14 * time.Second)
		var lost *holdfast.LostError
		if err := sess.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseExpired {
			t.Fatalf("first Check after the suspend: %v", err)
		}
		if r := sess.Remaining(); r != 0 {
			t.Errorf("Remaining %v", r)
		}
	})
}

// The machine has slept, and etcd is not reached yet: renewals of a lease that has ended would be sent each 10 ms.
func TestLeaseThatEndedWhileTheMachineSleptIsNotRenewed(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		clock, jump := jumping()
		c.open(t, session.Options{StayLost: true, Clock: clock})
		c.hang()
		jump(14 * time.Second)
		before := c.count("LeaseKeepAlive")
		time.Sleep(20 * time.Second)
		if n := c.count("LeaseKeepAlive") - before; n > 0 {
			t.Errorf("renewed %d times", n)
		}
	})
}

func TestRevokedLeaseIsLostWithItsCause(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events := newRecorder()
		sess := c.open(t, session.Options{OnStateChange: events.record})
		c.Revoke(sess.Lease())
		if lost := lossOf(t, events.next(t, holdfast.Lost)); lost.Cause != holdfast.CauseRevoked {
			t.Errorf("%v", lost)
		}
		events.next(t, holdfast.Connected)
	})
}

// Another cluster knows the lease if it was restored from a backup, and does not if it was set up anew. The renewal
// finds that out, or the read that proves it, whichever is answered. If the cluster does not tell its ID, the loss is
// reported without that, a quarter of a second later.
func TestAnotherClusterBehindTheEndpointsIsALoss(t *testing.T) {
	for name, tc := range map[string]struct {
		restored bool
		hangs    string // the requests of that method
		cause    holdfast.Cause
		late     time.Duration // after the renewal was sent
		delay    time.Duration // LockDelay; others hold after that
	}{
		"restored":                {true, "", holdfast.CauseClusterChanged, 0, 0},
		"restored, reads hang":    {true, "Range", holdfast.CauseClusterChanged, 0, 0},
		"restored, renewals hang": {true, "LeaseKeepAlive", holdfast.CauseClusterChanged, 0, 0},
		"new":                     {false, "", holdfast.CauseClusterChanged, 0, 0},
		"new, the proof hangs":    {false, "first Range", holdfast.CauseClusterChanged, 0, 0},
		"new, reads hang":         {false, "Range", holdfast.CauseRevoked, 250 * time.Millisecond, 0},
		"new, a short lock delay": {false, "Range", holdfast.CauseRevoked, 50 * time.Millisecond, time.Second / 5},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, func(t *testing.T, c *cluster) {
				events := newRecorder()
				cli, network := c.connect(t, plain())
				sess := c.openOn(t, cli, session.Options{OnStateChange: events.record, LockDelay: tc.delay})
				granted, renewal := time.Now(), sess.Remaining()*3/8
				other := newCluster(t, etcdfake.Options{})
				if tc.restored {
					conn := other.dial(t).ActiveConnection()
					request := &pb.LeaseGrantRequest{ID: int64(sess.Lease()), TTL: 60}
					if _, err := pb.NewLeaseClient(conn).LeaseGrant(t.Context(), request); err != nil {
						t.Fatal(err)
					}
				}
				first := true
				switch tc.hangs {
				case "":
				case "first Range":
					other.link.Plan(func(call etcdfake.Call) (fate etcdfake.Fate) {
						if call.Method == "Range" && first {
							first, fate = false, unanswered
						}
						return fate
					})
				default:
					other.hang(tc.hangs)
				}
				network.leadTo(other)
				lost := lossOf(t, events.next(t, holdfast.Lost))
				if took := time.Since(granted); lost.Cause != tc.cause || took != renewal+tc.late {
					t.Errorf("after %v, want %v: %v", took, renewal+tc.late, lost)
				}
				other.heal()
				events.next(t, holdfast.Connected)
			})
		})
	}
}

// If a loss follows from a request without a reply, the error says so.
func TestLossSaysThatEtcdHasNotReplied(t *testing.T) {
	for _, method := range []string{"LeaseKeepAlive", "Range"} {
		start(t, func(t *testing.T, c *cluster) {
			events := newRecorder()
			c.open(t, session.Options{OnStateChange: events.record})
			c.hang(method)
			for _, state := range []holdfast.State{holdfast.Suspended, holdfast.Lost} {
				ev := events.next(t, state)
				if !errors.Is(ev.Err, context.DeadlineExceeded) || !strings.Contains(ev.Err.Error(), "etcd has not replied") {
					t.Errorf("%v: %v", state, ev.Err)
				}
			}
		})
	}
}

// The suspension and the loss say why etcd has refused the renewals, and these are counted.
func TestLossSaysWhyRenewalsFailed(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events := newRecorder()
		o := session.Options{OnStateChange: events.record}
		metrics := kit.CollectMetrics(&o)
		count := func(outcome string) int64 {
			return metrics.Points(t)["renewal.duration outcome="+outcome]
		}
		c.open(t, o)
		time.Sleep(time.Minute)
		confirmed := count("confirmed")
		if confirmed < 8 || count("failed") > 0 {
			t.Errorf("at first: %v", metrics.Points(t))
		}
		c.refuse(codes.PermissionDenied, "LeaseKeepAlive")
		for _, state := range []holdfast.State{holdfast.Suspended, holdfast.Lost} {
			if ev := events.next(t, state); !strings.Contains(fmt.Sprint(ev.Err), "PermissionDenied") {
				t.Errorf("%v: %v", state, ev.Err)
			}
		}
		if failed := count("failed"); failed < 3 || count("confirmed") != confirmed {
			t.Errorf("refused: %v", metrics.Points(t))
		}
		c.heal()
		events.next(t, holdfast.Connected)
	})
}

// Close ends a renewal that has no reply. That is no failure.
func TestCloseDuringARenewalCountsNoFailure(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		var o session.Options
		metrics := kit.CollectMetrics(&o)
		sess := c.open(t, o)
		c.hang("LeaseKeepAlive")
		time.Sleep(6 * time.Second) // it was sent at 5 s
		if err := sess.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if p := metrics.Points(t); p["renewal.duration outcome=failed"] != 0 {
			t.Errorf("%v", p)
		}
	})
}

// Once, the session asked for a lease forever after its client was closed, and its waiters waited on.
func TestClosedClientEndsTheSession(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events, cli := newRecorder(), c.dial(t)
		sess := c.openOn(t, cli, session.Options{OnStateChange: events.record})
		held := await(t, sess)
		if err := cli.Close(); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		lost := lossOf(t, events.next(t, holdfast.Lost))
		if lost.Cause != holdfast.CauseClientClosed || !errors.Is(lost, holdfast.ErrClientClosed) || held.Check() == nil {
			t.Errorf("%v", lost)
		}
		began, grants := time.Now(), c.count("LeaseGrant")
		_, err := lease.Open(sess).Await(t.Context())
		if !errors.Is(err, holdfast.ErrClientClosed) || !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Await: %v", err)
		}
		if strings.Count(err.Error(), "client") != strings.Count(lost.Error(), "client") {
			t.Errorf("Await says twice why: %v", err)
		}
		if time.Since(began) != 0 {
			t.Errorf("Await took %v", time.Since(began))
		}
		time.Sleep(time.Hour)
		if n := c.count("LeaseGrant") - grants; n != 0 || len(events) != 0 {
			t.Errorf("%d grants, %d events", n, len(events))
		}
		began = time.Now()
		err = sess.Close(t.Context())
		if !errors.Is(err, holdfast.ErrClientClosed) || errors.Is(err, holdfast.ErrOutcomeUnknown) || time.Since(began) != 0 {
			t.Errorf("Close after %v: %v", time.Since(began), err)
		}
		if _, err := session.New(t.Context(), cli, session.Options{}); !errors.Is(err, holdfast.ErrClientClosed) {
			t.Errorf("New: %v", err)
		}
	})
}

// The client is closed while a call waits for a new lease.
func TestAwaitReturnsWhenTheClientIsClosed(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events, cli := newRecorder(), c.dial(t)
		sess := c.openOn(t, cli, session.Options{OnStateChange: events.record})
		c.hang()
		events.next(t, holdfast.Suspended)
		events.next(t, holdfast.Lost)
		waiter := make(chan error, 1)
		go func() { // joined below
			_, err := lease.Open(sess).Await(t.Context())
			waiter <- err
		}()
		time.Sleep(time.Minute)
		_ = cli.Close()
		synctest.Wait()
		select {
		case err := <-waiter:
			var lost *holdfast.LostError
			if !errors.Is(err, holdfast.ErrClientClosed) || !errors.As(err, &lost) || lost.Cause != holdfast.CauseExpired {
				t.Errorf("%v", err)
			}
		default:
			t.Fatal("it still waits")
		}
		time.Sleep(time.Minute)
		select {
		case <-sess.Done():
		default:
			t.Error("the session still asks for a lease")
		}
	})
}

// The client is closed after etcd's last reply about the next lease, and before calls get that lease.
func TestLeaseThatFollowsTheCloseOfItsClientIsLostAtOnce(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		cli, begun := c.dial(t), 0
		ctx := lease.Observe(t.Context(), func(s lease.Step) {
			if s.Action != lease.Begins {
				return
			}
			if begun++; begun == 2 {
				_ = cli.Close()
				time.Sleep(time.Millisecond) // what waits for that has run
			}
		})
		sess, err := session.New(ctx, cli, quiet(session.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c.Revoke(sess.Lease())
		time.Sleep(time.Second)
		var lost *holdfast.LostError
		if err := sess.Check(); begun != 2 || !errors.As(err, &lost) || lost.Cause != holdfast.CauseClientClosed {
			t.Errorf("%d leases: %v", begun, err)
		}
		_ = sess.Close(t.Context())
	})
}
