package simulation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/family"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// process stands for one process: a connection, a session and a clock.
type process struct {
	id          int
	link        *etcdfake.Link
	client      func() (cli *clientv3.Client, started func()) // see simulation.client
	oneEndpoint bool                                          // for all members: its session has one watch, and polls
	say         func(lease.Step)
	begin       time.Time
	ttl         time.Duration
	jitter      *rand.Rand
	sess        atomic.Pointer[session.Session]
	rate        float64          // of its clock relative to the server's
	offset      atomic.Int64     // jumps of its clock, in sum
	lease       clientv3.LeaseID // the last one of its session that was observed

	faultsMu sync.Mutex     // protects faults
	faults   []oracle.Fault // of its connection, in order of their beginnings; no two overlap

	mu    sync.Mutex         // protects what follows, and jitter
	hurry [2]context.Context // end when half of its waiters are to give up, and when its holders are to release
	end   [2]context.CancelFunc
}

func (c *process) name() string { return fmt.Sprint("session ", c.id) }

// sent returns how many requests it has sent.
func (c *process) sent() (n int) {
	for _, of := range c.link.Count() {
		n += of
	}
	return n
}

// session returns the session that is open, or the last one.
func (c *process) session() *session.Session { return c.sess.Load() }

func (s *simulation) start(id int, r *rand.Rand) (*process, error) {
	c := &process{id: id, link: s.srv.Link(), rate: 0.94 + 0.12*r.Float64(), begin: time.Now()}
	for i := range c.hurry {
		c.hurry[i], c.end[i] = context.WithCancel(context.Background())
	}
	c.say = s.say
	c.oneEndpoint = s.source(700+uint64(id)).IntN(4) == 0
	c.client = func() (*clientv3.Client, func()) { return s.client(c.link, c.oneEndpoint) }
	c.jitter = s.source(100 + uint64(id))
	c.ttl = time.Duration(1+r.IntN(5)) * time.Second
	if s.quiet {
		c.ttl *= 3 // or the proofs of renewals tell what watches and polls should
	}
	return c, c.open(context.Background())
}

// open gives the client a session.
func (c *process) open(ctx context.Context) error {
	cli, started := c.client()
	sess, err := session.New(lease.Observe(ctx, c.say), cli, session.Options{
		TTL:          c.ttl,
		CloseTimeout: closeTimeout,
		Clock: func() time.Duration {
			return time.Duration(float64(time.Since(c.begin))*c.rate) + time.Duration(c.offset.Load())
		},
		Retry: backoff.Policy{Rand: func() float64 {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.jitter.Float64()
		}},
		Logger: slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError + 1})),
	})
	if err == nil {
		started()
		c.sess.Store(sess)
	}
	return err
}

func (s *simulation) closeSession(c *process) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	start, id := s.now(), c.session().Lease()
	err := c.session().Close(ctx)
	if errors.Is(err, holdfast.ErrOutcomeUnknown) {
		s.mu.Lock()
		s.unrevoked = append(s.unrevoked, id)
		s.mu.Unlock()
	}
	s.log(fmt.Sprintf("session %d: closed, %v", c.id, err))
	s.checkDuration(fmt.Sprintf("closing session %d", c.id), start, closeTimeout)
	return err
}

// reopen closes the session of a client now and then, and opens another one.
func (s *simulation) reopen(c *process) {
	r := s.source(500 + uint64(c.id))
	for {
		time.Sleep(family.UpTo(r, 8*time.Second) + time.Millisecond)
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
			time.Sleep(family.UpTo(r, time.Second) + time.Millisecond)
		}
		s.log(fmt.Sprintf("session %d: opened again", c.id))
	}
}
