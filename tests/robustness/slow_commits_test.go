//go:build linux

package robustness

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
)

// In a cluster with slow commits, no more sessions are lost than leases that etcd's client keeps alive, and requests do
// not pile up. Sessions may be suspended, because a renewal counts only after a linearizable read, which is as slow as
// a commit.
//
// The delay is between members. A commit takes two delays through the leader and four
// through a follower. A linearizable read takes as long, and up to twice as long if it
// waits for another one. Two such reads must fit into the trusted time, which they do
// not with a TTL of 5 s and a delay of 0.5 s.
func TestSlowCommitsLoseNoMoreSessionsThanKeepAlive(t *testing.T) {
	for _, c := range []struct {
		name       string
		delay, ttl time.Duration
		observed   time.Duration // 0: skip
	}{
		{"half a second to one, TTL 5 s", 250 * time.Millisecond, 5 * time.Second, seconds(rounds.Long(300, 30, 8))},
		{"one second to two, TTL 15 s", 500 * time.Millisecond, 15 * time.Second, seconds(rounds.Long(300, 30, 0))},
		{"three seconds to six, TTL 30 s", 1500 * time.Millisecond, 30 * time.Second, seconds(rounds.Long(300, 0, 0))},
	} {
		if c.observed == 0 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			measure(t, func(t *testing.T) finding { return observeSlowCommits(t, c.delay, c.ttl, c.observed) })
		})
	}
}

func observeSlowCommits(t *testing.T, delay, ttl, observed time.Duration) (f finding) {
	p := startFaultyCluster(t, 3, "", etcdtest.Options{DefaultTicks: true, Configure: func(cfg *embed.Config) {
		// More than the round trip, and as much less than the TTL as etcd
		// requires.
		cfg.ElectionMs = 3300
	}})
	w := p.newWorkload(t)
	for range *sickSessions {
		w.add(t, ttl, time.Second)
		w.add(t, ttl, 0)
	}
	w.settle(t)
	var bare atomic.Int64
	for range 2 * *sickSessions {
		w.keepAlive(t, ttl, &bare)
	}
	w.addBare(t, *sickSessions, 100*time.Millisecond, bareRead)
	p.cluster.Delay(delay)
	t.Cleanup(p.cluster.Heal)
	o := w.observe(t, observed)
	t.Logf("of as many leases that etcd's client kept alive, %d were lost", bare.Load())
	if o.lost > bare.Load() {
		f.wrong = fmt.Sprintf("%d sessions were lost, and %d leases that etcd's client kept alive", o.lost, bare.Load())
	}
	if o.bare > (ttl-ttl/10)/2 {
		f.slow = fmt.Sprintf("a bare client's read took %v", o.bare)
	}
	for method, rate := range o.rates {
		if rate > mostPerSecond {
			t.Errorf("%s: %.2f per session and second, want at most %d", method, rate, mostPerSecond)
		}
	}
	return f
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// mostPerSecond limits the requests of one method per session. A busy session sends two
// Txns a second to a healthy cluster.
const mostPerSecond = 10

// keepAlive lets etcd's client keep a lease alive, and counts it in lost if it expires.
func (w *workload) keepAlive(t *testing.T, ttl time.Duration, lost *atomic.Int64) {
	t.Helper()
	cli := w.p.client(t)
	lease, err := cli.Grant(deadline(t), int64(ttl/time.Second))
	if err != nil {
		t.Fatal(err)
	}
	answers, err := cli.KeepAlive(w.ctx, lease.ID)
	if err != nil {
		t.Fatal(err)
	}
	w.running.Go(func() {
		for range answers {
		}
		if w.ctx.Err() == nil {
			lost.Add(1)
		}
	})
}
