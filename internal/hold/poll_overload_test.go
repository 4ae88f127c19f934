package hold_test

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/holdtest"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/session"
)

// busyCluster serves the requests of many sessions one after the other, even those that were canceled meanwhile.
type busyCluster struct {
	mu     sync.Mutex // protects the rest
	each   time.Duration
	reply  time.Duration // after it was served
	hung   int           // this member of three serves nothing; 0: all serve
	free   time.Time     // when all requests so far are served
	silent bool
	sent   int
}

// serve is the plan of one session's link. Its requests go to the members in turn.
func (c *busyCluster) serve(first int) func(etcdfake.Call) etcdfake.Fate {
	return func(call etcdfake.Call) etcdfake.Fate {
		if call.Request == nil { // an event
			return etcdfake.Fate{}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sent++
		first++
		if c.silent || first%3+1 == c.hung {
			return holdtest.Silence
		}
		now := time.Now()
		if c.free.Before(now) {
			c.free = now
		}
		c.free = c.free.Add(c.each)
		return etcdfake.Fate{Request: c.free.Sub(now), Reply: c.reply}
	}
}

// count returns how many requests are sent in a time, for each session and second.
func (c *busyCluster) count(within time.Duration) float64 {
	c.mu.Lock()
	before := c.sent
	c.mu.Unlock()
	time.Sleep(within)
	c.mu.Lock()
	defer c.mu.Unlock()
	return float64(c.sent-before) / busySessions / within.Seconds()
}

const busySessions = 10

// perSecond is the time that each request takes if the cluster can serve so many a second of each session.
func perSecond(n float64) time.Duration {
	return time.Duration(float64(time.Second) / busySessions / n)
}

// withLease keeps sessions from using the client's connection, which leads nowhere.
type withLease struct{ clientv3.Lease }

// Sessions that hold do not make a slow etcd slower, and do not keep it busy after what made it slow has passed. Each
// has a client for three endpoints. In good times it sends 2 polls a second, and 0.4 requests to renew.
func TestSessionsDoNotKeepEtcdOverloaded(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(c *busyCluster)
		lasts   time.Duration
		most    float64 // requests of each session in a second, meanwhile
	}{
		"replies take 0.3 s":    {func(c *busyCluster) { c.reply = 300 * time.Millisecond }, 20 * time.Second, 2.7},
		"replies take 3 s":      {func(c *busyCluster) { c.reply = 3 * time.Second }, 20 * time.Second, 1.7},
		"a member hangs":        {func(c *busyCluster) { c.hung = 2 }, 20 * time.Second, 5},
		"none answers":          {func(c *busyCluster) { c.silent = true }, 5 * time.Second, 6.5},
		"2 a second are served": {func(c *busyCluster) { c.each = perSecond(2) }, 40 * time.Second, 2.3},
		"none is served for 3 s, then 3 a second": {func(c *busyCluster) {
			c.each, c.free = perSecond(3), time.Now().Add(3*time.Second)
		}, 20 * time.Second, 3},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				cluster := &busyCluster{each: perSecond(100)}
				var lost atomic.Int64
				var links []*etcdfake.Link
				for i := range busySessions {
					link := srv.Link()
					links = append(links, link)
					cli, err := clientv3.New(clientv3.Config{Endpoints: slices.Repeat([]string{"127.0.0.1:1"}, 3)})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = cli.Close() })
					cli.KV, cli.Lease, cli.Watcher = link.Client().KV, withLease{link.Client().Lease}, link.Client().Watcher
					cli.Maintenance = nil
					link.Plan(cluster.serve(i))
					sess, err := session.New(t.Context(), cli, &session.Options{
						Clock: session.MonotonicClock(), Logger: slog.New(slog.DiscardHandler),
						OnStateChange: func(ev session.Event) {
							if ev.State == holdfast.Lost {
								lost.Add(1)
							}
						},
					})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = sess.Close(t.Context()) })
					holdtest.MustAcquire(t, queue.New(lease.Open(sess.Ref()), "lock", fmt.Sprint(i)))
					time.Sleep(530 * time.Millisecond) // spreads their renewals and their polls
				}
				time.Sleep(10 * time.Second)
				cluster.mu.Lock()
				c.happens(cluster)
				cluster.mu.Unlock()
				during := cluster.count(c.lasts)
				cluster.mu.Lock()
				cluster.silent, cluster.hung, cluster.reply, cluster.each = false, 0, 0, perSecond(10)
				cluster.mu.Unlock()
				time.Sleep(20 * time.Second)
				after := cluster.count(10 * time.Second)
				if lost.Load() > 0 || during > c.most || after > 2.6 {
					t.Errorf("%d sessions lost; each sent %.2f requests a second, at most %.2f; 20 s later %.2f, at most 2.6",
						lost.Load(), during, c.most, after)
				} else {
					t.Logf("each session sent %.2f requests a second, 20 s later %.2f", during, after)
				}
				for _, link := range links {
					link.Heal()
				}
			})
		})
	}
}
