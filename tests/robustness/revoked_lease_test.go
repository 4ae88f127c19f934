//go:build linux

package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// Scenario 30, the other half: etcd's leader is stopped for longer than the TTL
// and continues. It may then revoke leases that its successor has renewed. The
// entry of a holder that runs and is connected is gone; the waiter behind must
// not hold before that holder is told. In every other round one of the other
// members hangs from then on.
func TestLeaseRevokedByAResumedLeaderNeverLetsTwoHold(t *testing.T) {
	t.Parallel()
	// Longer than the 5 s after which the others break their connections to a
	// member that is stopped, so that it takes its time to hear of its successor.
	const ttl, lines = 8 * time.Second, 8
	for i := range long(2, 1, 1) {
		t.Run(fmt.Sprint("cluster ", i), func(t *testing.T) {
			if *longRuns { // one cluster alone begins at once: it takes longest of all
				t.Parallel()
			}
			c := &revocations{cluster: etcdtest.StartCluster(t, 3, etcdtest.Options{Processes: true, DefaultTicks: true})}
			for round := range long(20, 2, 1) {
				c.begin(t, round, lines, ttl)
				old, _ := leaderAndOthers(t, c.cluster)
				succeed(t, old.Pause())
				// The leases run out on the old leader meanwhile; its successor gives
				// each its full TTL, and renews it.
				<-time.After(ttl + rand.N(ttl/4))
				var hung *etcdtest.Server
				if round%2 == 0 {
					hung = c.follower(t, old)
				}
				succeed(t, old.Resume())
				if hung != nil { // not before: a quorum needs the old leader
					succeed(t, hung.Pause())
				}
				c.settle(t)
				c.end(t, hung)
			}
			c.report(t)
		})
	}
}

// The same by hand, which needs no luck: the holder's lease is revoked by
// another client.
func TestLeaseRevokedByHandNeverLetsTwoHold(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{Processes: true})
	c := &revocations{cluster: cluster}
	for round := range long(40, 10, 3) {
		c.begin(t, round, 2, ttl)
		var hung *etcdtest.Server
		if round%2 == 0 {
			hung = c.follower(t, nil)
			succeed(t, hung.Pause())
		}
		leader, _ := leaderAndOthers(t, cluster)
		began := time.Now()
		for _, l := range c.lines {
			if _, err := leader.Client(t).Revoke(deadline(t), l.sessions[0].Lease()); err != nil {
				t.Fatal(err)
			}
		}
		for _, l := range c.lines {
			select {
			case <-l.held.Done():
			case <-deadline(t).Done():
				t.Fatalf("%s: the holder of a revoked lease is not told", l.name)
			}
			if hung == nil {
				c.told.add(time.Since(began))
			} else {
				c.toldBesideHung.add(time.Since(began))
			}
		}
		c.end(t, hung)
	}
	c.report(t)
}

// What a waiter pays when the holder is killed: etcd lets the lease run out, and
// nothing tells that from a revoke, so the lock delay follows.
func TestWaiterAcquiresAfterTheHolderIsKilled(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	var waits durations
	for round := range rounds(5, 1) {
		name := fmt.Sprint("killed-", round)
		p := startChild(t, srv.Endpoints(), childTTL)
		p.order(t, order{Kind: "lock", Name: name})
		p.expect(t, "lock", name, "holds")
		waiter := holdLater(t, "lock", open(t, srv.Client(t), session.Options{}), name)
		srv.WaitForKeys(t, "holdfast/lock/"+name+"/@/", 2)
		killed := time.Now()
		p.Kill()
		next := <-waiter
		if next == nil {
			return
		}
		waits.add(time.Since(killed))
		succeed(t, release(deadline(t), next))
	}
	t.Logf("TTL %v; a waiter held after the kill: %s", childTTL, waits.summary())
}

// Revocations are rounds of holders with waiters behind them, and what was seen.
type revocations struct {
	cluster *etcdtest.Cluster
	lines   []*contended // of this round

	lost                      map[holdfast.Cause]int // holders, by why
	told, toldBesideHung      durations              // after a revoke by hand
	handOver, unlock, closing durations
}

// contended is one name: a holder and two waiters, each with a session and a client of its own.
type contended struct {
	kind, name string
	sessions   []*session.Session
	held       hold
	waiting    sync.WaitGroup
	referee    referee

	mu      sync.Mutex // protects granted
	granted []time.Time
}

func (c *revocations) begin(t *testing.T, round, lines int, ttl time.Duration) {
	t.Helper()
	c.lines = make([]*contended, lines)
	inParallel(lines, lines, func(i int) {
		l := &contended{kind: []string{"lock", "election"}[i%2], name: fmt.Sprintf("round-%d-%d", round, i)}
		for range 3 {
			l.sessions = append(l.sessions, open(t, c.client(t), session.Options{TTL: ttl}))
		}
		var err error
		if l.held, err = kinds[l.kind](deadline(t), l.sessions[0], l.name, "0"); err != nil {
			t.Errorf("%s: %v", l.name, err)
			return
		}
		l.referee.enter(l.held)
		l.referee.watch()
		prefix := "holdfast/" + l.kind + "/" + l.name + "/@/"
		for n, sess := range l.sessions[1:] {
			l.waiting.Go(func() { l.wait(t, sess, fmt.Sprint(n+1)) })
			await(t, "a waiter queues", func() bool {
				resp, err := sess.Client().Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
				return err == nil && resp.Count >= int64(n+2) || errors.Is(l.held.Check(), holdfast.ErrLost)
			})
		}
		c.lines[i] = l
	})
	if slices.Contains(c.lines, nil) {
		t.FailNow()
	}
}

// wait queues, and holds until the first holder knows that it does not.
func (l *contended) wait(t *testing.T, sess *session.Session, owner string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	h, err := kinds[l.kind](ctx, sess, l.name, owner)
	if err != nil {
		t.Errorf("%s: %v", l.name, err)
		return
	}
	l.referee.enter(h)
	l.mu.Lock()
	l.granted = append(l.granted, time.Now())
	l.mu.Unlock()
	<-l.held.Done()
	l.referee.leave(h)
	if err := release(ctx, h); err != nil && !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("%s: %v", l.name, err)
	}
}

// settle waits until each holder has lost its lease, or has had two renewals
// confirmed, one after the other, since the old leader continued.
func (c *revocations) settle(t *testing.T) {
	t.Helper()
	for range 2 {
		now := time.Now()
		for _, l := range c.lines {
			await(t, "a renewal is confirmed or the lease is lost", func() bool {
				return errors.Is(l.held.Check(), holdfast.ErrLost) || l.sessions[0].Unconfirmed() < time.Since(now)
			})
		}
	}
}

// end releases what is still held, lets all waiters have their turn, and closes the sessions.
func (c *revocations) end(t *testing.T, hung *etcdtest.Server) {
	t.Helper()
	for _, l := range c.lines {
		err := l.held.Check()
		var why *holdfast.LostError
		lost := errors.As(err, &why)
		if lost {
			if c.lost == nil {
				c.lost = make(map[holdfast.Cause]int)
			}
			c.lost[why.Cause]++
		}
		l.referee.leave(l.held)
		began := time.Now()
		if err := release(deadline(t), l.held); err != nil && !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("%s: release: %v", l.name, err)
		}
		released := time.Now()
		l.waiting.Wait()
		l.referee.stop()
		if !lost && len(l.granted) > 0 {
			c.unlock.add(released.Sub(began))
			c.handOver.add(l.granted[0].Sub(began))
		}
		if lost {
			t.Logf("%s %s: %v", l.kind, l.name, err)
		}
		for _, o := range l.referee.overlaps {
			t.Errorf("%s %s: two held at once for %v", l.kind, l.name, o)
		}
	}
	if hung != nil {
		succeed(t, hung.Resume())
	}
	for _, l := range c.lines {
		for _, sess := range l.sessions {
			began := time.Now()
			if err := sess.Close(deadline(t)); err != nil {
				t.Errorf("%s: Close: %v", l.name, err)
			}
			c.closing.add(time.Since(began))
			sess.Client().Close()
		}
	}
}

func (c *revocations) report(t *testing.T) {
	t.Helper()
	t.Logf("holders that lost it: %v", c.lost)
	t.Logf("told of a revoke by hand: %s; beside a member that hangs: %s", c.told.summary(), c.toldBesideHung.summary())
	t.Logf("hand-over %s; Unlock %s; Close %s", c.handOver.summary(), c.unlock.summary(), c.closing.summary())
}

// client returns a client of all members, closed with the test.
func (c *revocations) client(t *testing.T) *clientv3.Client {
	t.Helper()
	var endpoints []string
	for _, m := range c.cluster.Members() {
		endpoints = append(endpoints, m.Endpoints()...)
	}
	rand.Shuffle(len(endpoints), func(i, k int) { endpoints[i], endpoints[k] = endpoints[k], endpoints[i] })
	cli, err := clientv3.New(session.ClientConfig(endpoints...))
	succeed(t, err)
	t.Cleanup(func() { cli.Close() })
	return cli
}

// follower returns a member that does not lead and is not the given one.
func (c *revocations) follower(t *testing.T, but *etcdtest.Server) *etcdtest.Server {
	t.Helper()
	leader, _ := leaderAndOthers(t, c.cluster)
	for _, m := range c.cluster.Members() {
		if m != leader && m != but {
			return m
		}
	}
	return nil
}
