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
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/fakedial"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
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

// seldomWatched returns a client with three endpoints, of which no session can watch enough members.
func seldomWatched(t *testing.T, _ *etcdfake.Server, link *etcdfake.Link) *clientv3.Client {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: slices.Repeat([]string{"127.0.0.1:1"}, 3)})
	if err != nil {
		t.Fatal(err)
	}
	cli.KV, cli.Lease, cli.Watcher = link.Client().KV, withLease{link.Client().Lease}, link.Client().Watcher
	cli.Maintenance = nil
	return cli
}

// watched returns a client of three members, of which its session watches enough.
func watched(_ *testing.T, srv *etcdfake.Server, link *etcdfake.Link) *clientv3.Client {
	return fakedial.Direct(link, srv.Members())
}

// Sessions that hold do not make a slow etcd slower, and do not keep it busy after what made it slow has passed. Each
// has a client for three endpoints. In good times one whose lease is watched sends 0.4 requests a second: renewals, and
// their proofs, which poll. One whose lease is not watched sends 2 polls a second.
func TestSessionsDoNotKeepEtcdOverloaded(t *testing.T) {
	silent := func(c *busyCluster) { c.silent = true }
	hung := func(c *busyCluster) { c.hung = 2 }
	reply := func(after time.Duration) func(*busyCluster) { return func(c *busyCluster) { c.reply = after } }
	serves := func(n float64) func(*busyCluster) { return func(c *busyCluster) { c.each = perSecond(n) } }
	stalls := func(d time.Duration, then float64) func(*busyCluster) {
		return func(c *busyCluster) { c.each, c.free = perSecond(then), time.Now().Add(d) }
	}
	for kind, of := range map[string]struct {
		client dialing
		atRest float64 // with the renewals of the leases of claims, which may all come in the ten seconds that count
		cases  map[string]overload
	}{
		"watched": {watched, 0.6 + 0.1, map[string]overload{
			"replies take 0.3 s":    {reply(300 * time.Millisecond), 20 * time.Second, 1.2},
			"replies take 3 s":      {reply(3 * time.Second), 20 * time.Second, 1.1},
			"a member hangs":        {hung, 20 * time.Second, 1.2},
			"none answers":          {silent, 5 * time.Second, 2.1},
			"2 a second are served": {serves(2), 40 * time.Second, 0.9},
			"1.8 a second are served, after 0.2 s more": {func(c *busyCluster) {
				serves(1.8)(c)
				reply(200 * time.Millisecond)(c)
			}, 40 * time.Second, 1.5},
			"1 a second is served":                    {serves(1), 60 * time.Second, 0.9},
			"none is served for 3 s, then 3 a second": {stalls(3*time.Second, 3), 20 * time.Second, 1.1},
			"none is served for 3 s, then 1 a second": {stalls(3*time.Second, 1), 60 * time.Second, 1},
			"none is served for 5 s, then 2 a second": {stalls(5*time.Second, 2), 60 * time.Second, 0.9},
		}},
		"not watched": {seldomWatched, 2.7, map[string]overload{
			"replies take 0.3 s":                      {reply(300 * time.Millisecond), 20 * time.Second, 3.5},
			"replies take 3 s":                        {reply(3 * time.Second), 20 * time.Second, 2.1},
			"a member hangs":                          {hung, 20 * time.Second, 5.5},
			"none answers":                            {silent, 5 * time.Second, 5},
			"2 a second are served":                   {serves(2), 40 * time.Second, 2.6},
			"1.6 a second are served":                 {serves(1.6), 40 * time.Second, 2.3},
			"none is served for 3 s, then 3 a second": {stalls(3*time.Second, 3), 20 * time.Second, 3},
			"none is served for 3 s, then 2 a second": {stalls(3*time.Second, 2), 40 * time.Second, 2.5},
		}},
	} {
		for name, c := range of.cases {
			t.Run(kind+", "+name, func(t *testing.T) {
				three(t, func(t *testing.T, srv *etcdfake.Server) { c.run(t, srv, of.client, of.atRest) })
			})
		}
	}
}

// What sessions send that have lost their leases does not keep etcd from granting new ones.
func TestSessionsComeBackWhileEtcdIsSlow(t *testing.T) {
	three(t, func(t *testing.T, srv *etcdfake.Server) {
		cluster, sessions, lost := busySessionsOf(t, srv, watched)
		cluster.mu.Lock()
		cluster.each, cluster.free = perSecond(2), time.Now().Add(20*time.Second)
		cluster.mu.Unlock()
		time.Sleep(20 * time.Second)
		if n := lost.Load(); n != busySessions {
			t.Fatalf("%d of %d leases are lost: this tests nothing", n, busySessions)
		}
		time.Sleep(time.Minute)
		for i, sess := range sessions {
			if err := sess.Check(); err != nil {
				t.Errorf("session %d, after a minute: %v", i, err)
			}
		}
		if n := cluster.count(30 * time.Second); n > 0.8 {
			t.Errorf("each session sends %.2f requests a second", n)
		}
	})
}

// overload is what happens to a cluster.
type overload struct {
	happens func(c *busyCluster)
	lasts   time.Duration
	most    float64 // requests of each session in a second, meanwhile
}

// dialing returns a client whose requests go through a link.
type dialing func(*testing.T, *etcdfake.Server, *etcdfake.Link) *clientv3.Client

// busySessionsOf returns a cluster and sessions, each of which holds, and counts the leases that are lost.
func busySessionsOf(
	t *testing.T, srv *etcdfake.Server, client dialing,
) (cluster *busyCluster, sessions []*session.Session, lost *atomic.Int64) {
	t.Helper()
	cluster, lost = &busyCluster{each: perSecond(100)}, new(atomic.Int64)
	var links []*etcdfake.Link
	for i := range busySessions {
		link := srv.Link()
		links = append(links, link)
		cli := client(t, srv, link)
		t.Cleanup(func() { _ = cli.Close() })
		link.Plan(cluster.serve(i))
		sess, err := session.New(t.Context(), cli, &session.Options{
			LockDelay: time.Second, // those that cannot watch poll twice as often as with the default
			Clock:     session.MonotonicClock(), Logger: slog.New(slog.DiscardHandler),
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
		sessions = append(sessions, sess)
		holdtest.MustAcquire(t, queue.New(lease.Open(sess.Ref()), holdfast.KindLock, fmt.Sprint(i)))
		time.Sleep(530 * time.Millisecond) // spreads their renewals and their polls
	}
	t.Cleanup(func() { // before they are closed
		for _, link := range links {
			link.Heal()
		}
	})
	return cluster, sessions, lost
}

func (o overload) run(t *testing.T, srv *etcdfake.Server, client dialing, atRest float64) {
	cluster, _, lost := busySessionsOf(t, srv, client)
	time.Sleep(10 * time.Second)
	if before := cluster.count(10 * time.Second); before > atRest {
		t.Errorf("in good times each session sends %.2f requests a second, at most %.2f", before, atRest)
	}
	cluster.mu.Lock()
	o.happens(cluster)
	cluster.mu.Unlock()
	during := cluster.count(o.lasts)
	cluster.mu.Lock()
	cluster.silent, cluster.hung, cluster.reply, cluster.each = false, 0, 0, perSecond(10)
	cluster.mu.Unlock()
	time.Sleep(20 * time.Second)
	after := cluster.count(10 * time.Second)
	if lost.Load() > 0 || during > o.most || after > atRest {
		t.Errorf("%d sessions lost; each sent %.2f requests a second, at most %.2f; 20 s later %.2f, at most %.2f",
			lost.Load(), during, o.most, after, atRest)
	} else {
		t.Logf("each session sent %.2f requests a second, 20 s later %.2f", during, after)
	}
}
