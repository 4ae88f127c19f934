package robustness

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/session"
)

// simClient stands for one process: a connection, a session and a clock.
type simClient struct {
	id     int
	link   *etcdfake.Link
	client *clientv3.Client
	begin  time.Time
	ttl    time.Duration
	jitter *rand.Rand
	sess   atomic.Pointer[session.Session]
	rate   float64          // of its clock relative to the server's
	offset atomic.Int64     // jumps of its clock, in sum
	healed atomic.Int64     // when the last fault of its connection ends, in time since begin
	lost   clientv3.LeaseID // the last lease whose loss it reported; used by the oracle

	mu    sync.Mutex         // protects what follows, and jitter
	hurry [2]context.Context // end when half of its waiters are to give up, and when its holders are to release
	end   [2]context.CancelFunc
}

// session returns the session that is open, or the last one.
func (c *simClient) session() *session.Session { return c.sess.Load() }

func (s *simulation) open(id int, r *rand.Rand) (*simClient, error) {
	c := &simClient{id: id, link: s.srv.Link(), rate: 0.94 + 0.12*r.Float64(), begin: time.Now()}
	for i := range c.hurry {
		c.hurry[i], c.end[i] = context.WithCancel(context.Background())
	}
	c.client, c.jitter = c.link.Client(), s.source(100+uint64(id))
	c.ttl = time.Duration(1+r.IntN(5)) * time.Second
	return c, c.open(context.Background())
}

// open gives the client a session.
func (c *simClient) open(ctx context.Context) error {
	sess, err := session.New(ctx, c.client, &session.Options{
		TTL:          c.ttl,
		CloseTimeout: simCloseTimeout,
		Clock: func() time.Duration {
			return time.Duration(float64(time.Since(c.begin))*c.rate) + time.Duration(c.offset.Load())
		},
		Retry: backoff.Policy{Attempt: simAttempt, Rand: func() float64 {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.jitter.Float64()
		}},
		Logger: slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError + 1})),
	})
	if err == nil {
		c.sess.Store(sess)
	}
	return err
}

func (s *simulation) closeSession(c *simClient) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	start := s.now()
	err := c.session().Close(ctx)
	s.log(fmt.Sprintf("session %d: closed, %v", c.id, err))
	s.checkDuration(fmt.Sprintf("closing session %d", c.id), start, simCloseTimeout)
	return err
}

// reopen closes the session of a client now and then, and opens another one.
func (s *simulation) reopen(c *simClient) {
	r := s.source(500 + uint64(c.id))
	for {
		time.Sleep(upTo(r, 8*time.Second) + time.Millisecond)
		if s.stop.Load() {
			return
		}
		_ = s.closeSession(c) // faults may leave the lease to expire
		for {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			err := c.open(ctx)
			cancel()
			if err == nil {
				break
			}
			time.Sleep(upTo(r, time.Second) + time.Millisecond)
		}
		s.log(fmt.Sprintf("session %d: opened again", c.id))
	}
}
