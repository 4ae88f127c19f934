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
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
)

// Scenario 49: etcd's leader is paused for longer than the TTL. When it resumes, it
// may revoke leases that its successor has renewed, which deletes the entries of
// connected holders. The next waiter must not hold before such a holder is told. In
// every other round another member hangs after the leader resumed.
func TestLeaseRevokedByAResumedLeaderNeverLetsTwoHold(t *testing.T) {
	t.Parallel()
	// More than the 5 s after which the other members close their connections to a
	// paused member, so that it learns of its successor late.
	const ttl, queues = 8 * time.Second, 8
	for i := range rounds.Long(2, 1, 1) {
		t.Run(fmt.Sprint("cluster ", i), func(t *testing.T) {
			if rounds.Campaign() { // otherwise there is one cluster, which starts before other parallel tests
				t.Parallel()
			}
			c := &revocations{cluster: etcdtest.StartCluster(t, 3, etcdtest.Options{Processes: true, DefaultTicks: true})}
			for round := range rounds.Long(20, 2, 1) {
				c.begin(t, round, queues, ttl)
				old, _ := leaderAndOthers(t, c.cluster)
				mustSucceed(t, old.Pause())
				// Meanwhile the leases expire by the clock of the old leader. Its
				// successor gives each its full TTL and renews it.
				<-time.After(ttl + rand.N(ttl/4))
				var hung *etcdtest.Server
				if round%2 == 0 {
					hung = c.follower(t, old)
				}
				mustSucceed(t, old.Resume())
				if hung != nil { // the quorum needs the old leader
					mustSucceed(t, hung.Pause())
				}
				c.settle(t)
				c.end(t, hung)
			}
			c.report(t)
		})
	}
}

// Scenario 49 without chance: another client revokes the lease of the holder.
func TestLeaseRevokedByHandNeverLetsTwoHold(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{Processes: true, DefaultTicks: true})
	c := &revocations{cluster: cluster}
	for round := range rounds.Long(40, 10, 3) {
		c.begin(t, round, 2, ttl)
		var hung *etcdtest.Server
		if round%2 == 0 {
			hung = c.follower(t, nil)
			mustSucceed(t, hung.Pause())
		}
		leader, _ := leaderAndOthers(t, cluster)
		began := time.Now()
		for _, l := range c.queues {
			if _, err := leader.Client(t).Revoke(deadline(t), l.sessions[0].Lease()); err != nil {
				t.Fatal(err)
			}
		}
		for _, l := range c.queues {
			select {
			case <-l.held.Done():
			case <-deadline(t).Done():
				t.Fatalf("%s: the holder was not told that its lease was revoked", l.name)
			}
			if hung == nil {
				c.told.add(time.Since(began))
			} else {
				c.toldWhileHung.add(time.Since(began))
			}
		}
		c.end(t, hung)
	}
	c.report(t)
}

// Measures the wait after the holder is killed: its lease expires, which a waiter cannot
// tell from a revocation, so the lock delay follows.
func TestWaiterAcquiresAfterTheHolderIsKilled(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	var waits durations
	for round := range rounds.Of(5, 1) {
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
		mustSucceed(t, release(deadline(t), next))
	}
	t.Logf("TTL %v; from the kill to the next hold: %s", childTTL, waits.summary())
}

// revocations is a series of rounds on one cluster, and their measurements.
type revocations struct {
	cluster *etcdtest.Cluster
	queues  []*contended // of this round

	lost                     map[holdfast.Cause]int // number of lost holds
	told, toldWhileHung      durations              // from a revocation by a client
	handOff, unlock, closing durations
}

// contended is one name with a holder and two waiters. Each has its own session and client.
type contended struct {
	kind, name string
	sessions   []*session.Session
	held       hold
	waiting    sync.WaitGroup
	referee    referee

	mu      sync.Mutex // protects granted
	granted []time.Time
}

func (c *revocations) begin(t *testing.T, round, queues int, ttl time.Duration) {
	t.Helper()
	c.queues = make([]*contended, queues)
	inParallel(queues, queues, func(i int) {
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
			await(t, "a waiter has queued", func() bool {
				resp, err := sess.Client().Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
				return err == nil && resp.Count >= int64(n+2) || errors.Is(l.held.Check(), holdfast.ErrLost)
			})
		}
		c.queues[i] = l
	})
	if slices.Contains(c.queues, nil) {
		t.FailNow()
	}
}

// wait acquires the name and holds it until the first holder is told of its loss or
// has released.
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

// settle waits until each holder has lost its lease or two successive renewals have been
// confirmed.
func (c *revocations) settle(t *testing.T) {
	t.Helper()
	for range 2 {
		now := time.Now()
		for _, l := range c.queues {
			await(t, "a renewal is confirmed or the hold is lost", func() bool {
				return errors.Is(l.held.Check(), holdfast.ErrLost) || unconfirmed(l.sessions[0]) < time.Since(now)
			})
		}
	}
}

// end releases the first holds, waits until all waiters have held, and closes the sessions.
func (c *revocations) end(t *testing.T, hung *etcdtest.Server) {
	t.Helper()
	for _, l := range c.queues {
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
			c.handOff.add(l.granted[0].Sub(began))
		}
		if lost {
			t.Logf("%s %s: %v", l.kind, l.name, err)
		}
		for _, o := range l.referee.overlaps {
			t.Errorf("%s %s: two held at the same time for %v", l.kind, l.name, o)
		}
	}
	if hung != nil {
		mustSucceed(t, hung.Resume())
	}
	for _, l := range c.queues {
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
	t.Logf("lost holds: %v", c.lost)
	t.Logf("told of a revocation: %s; while a member hung: %s", c.told.summary(), c.toldWhileHung.summary())
	t.Logf("hand-off %s; Unlock %s; Close %s", c.handOff.summary(), c.unlock.summary(), c.closing.summary())
}

// client returns a client of all members in random order.
func (c *revocations) client(t *testing.T) *clientv3.Client {
	t.Helper()
	var endpoints []string
	for _, m := range c.cluster.Members() {
		endpoints = append(endpoints, m.Endpoints()...)
	}
	rand.Shuffle(len(endpoints), func(i, k int) { endpoints[i], endpoints[k] = endpoints[k], endpoints[i] })
	cli, err := clientv3.New(session.ClientConfig(endpoints...))
	mustSucceed(t, err)
	t.Cleanup(func() { cli.Close() })
	return cli
}

// follower returns a follower other than the given member.
func (c *revocations) follower(t *testing.T, except *etcdtest.Server) *etcdtest.Server {
	t.Helper()
	leader, _ := leaderAndOthers(t, c.cluster)
	for _, m := range c.cluster.Members() {
		if m != leader && m != except {
			return m
		}
	}
	return nil
}
