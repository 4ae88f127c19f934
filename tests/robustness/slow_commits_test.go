//go:build linux

package robustness

import (
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/holdfast-go/holdfast/etcdtest"
)

// A cluster whose commits take a second or three: no session is lost where a lease
// that etcd's client keeps alive lives, and requests do not pile up. Sessions may
// be suspended: a renewal counts when a linearizable read has proved it, and such
// reads are as slow.
//
// The members are far from each other. A commit takes two delays through the
// leader and four through a follower. So does a linearizable read, and as long
// again when it has to wait for the end of another one. In the time between two
// renewals and the loss there must be room for two such reads: with a TTL of 5 s
// and delays of 0.5 s there is not.
func TestSlowCommitsCostNoSessionThatKeepAliveDoesNotLose(t *testing.T) {
	for _, c := range []struct {
		name       string
		delay, ttl time.Duration
		watched    time.Duration // 0: not in this run
	}{
		{"half a second to one, TTL 5 s", 250 * time.Millisecond, 5 * time.Second, seconds(long(300, 30, 8))},
		{"one second to two, TTL 15 s", 500 * time.Millisecond, 15 * time.Second, seconds(long(300, 30, 0))},
		{"three seconds to six, TTL 30 s", 1500 * time.Millisecond, 30 * time.Second, seconds(long(300, 0, 0))},
	} {
		if c.watched == 0 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := admit(t, 3, "", etcdtest.Options{DefaultTicks: true, Configure: func(cfg *embed.Config) {
				// Longer than the delay there and back, and as much shorter than the
				// TTL as etcd wants it.
				cfg.ElectionMs = 3300
			}})
			w := p.open(t)
			for range *sickSessions {
				w.add(t, c.ttl, time.Second)
				w.add(t, c.ttl, 0)
			}
			w.settle(t)
			var bare atomic.Int64
			for range 2 * *sickSessions {
				w.keepAlive(t, c.ttl, &bare)
			}
			p.cluster.Delay(c.delay)
			t.Cleanup(p.cluster.Heal)
			o := w.look(t, c.watched)
			t.Logf("%d leases lost of as many that etcd's client keeps alive", bare.Load())
			if o.lost > bare.Load() {
				t.Errorf("%d sessions lost", o.lost)
			}
			for method, rate := range o.rates {
				if rate > mostPerSecond {
					t.Errorf("%s: %.2f per session and second: it piles up", method, rate)
				}
			}
		})
	}
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// mostPerSecond bounds the requests of one kind. A busy session makes two Txns a
// second where all is well.
const mostPerSecond = 10

// keepAlive has etcd's client keep a lease alive, and counts it if it is lost.
func (w *ward) keepAlive(t *testing.T, ttl time.Duration, lost *atomic.Int64) {
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
