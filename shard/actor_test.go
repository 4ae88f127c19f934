package shard_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/shard"
)

// Troubles of an actor that are treated in their own ways.
const (
	paused       = "paused"
	crashed      = "crashed"
	lateView     = "late view"
	lostMessages = "lost messages"
)

// actor is a member of the schedule.
type actor struct {
	*running
	name   string
	joined time.Time
	beside *actor // that had settled and was well when this one joined with a new name, or nil

	// Protected by judge.mu.
	stopped   bool      // by SIGSTOP, or crashed
	trouble   string    // that it has, or ""
	until     time.Time // when that ends
	calmSince time.Time // when the last one ended
	shaken    time.Time // when its lease was revoked last, or it has left
}

// early reports whether a member owns a shard before it may have settled: it has joined beside one that had.
func (s *simulation) early(a *actor) bool {
	s.judge.mu.Lock()
	defer s.judge.mu.Unlock()
	if a.beside == nil || time.Since(a.joined) >= s.settle {
		return false
	}
	return a.beside.trouble == "" && !a.beside.shaken.After(a.joined) && !a.beside.calmSince.After(a.joined)
}

// shake notes that something happens to a member that is no trouble.
func (s *simulation) shake(a *actor) {
	s.judge.mu.Lock()
	defer s.judge.mu.Unlock()
	a.shaken = time.Now()
}

// trouble begins a trouble of an actor, which ends by itself. A crash does not.
func (s *simulation) trouble(a *actor, what string, begin func()) {
	s.judge.mu.Lock()
	a.trouble, a.until = what, time.Now().Add(s.upTo(2*kit.TTL))
	a.stopped = what == paused || what == crashed
	s.judge.mu.Unlock()
	begin()
}

// relieve ends the trouble of an actor. Messages that are late still arrive.
func (s *simulation) relieve(a *actor) {
	switch a.trouble {
	case lateView:
		s.late(lag)
	case lostMessages:
		s.late(2 * time.Minute) // late ones still arrive
	}
	a.Resume()
	s.plan(a, false, false)
	s.judge.mu.Lock()
	defer s.judge.mu.Unlock()
	if a.trouble != "" {
		a.stopped, a.trouble, a.calmSince = false, "", time.Now()
	}
}

// plan has fenced writes be late, events if the view is to lag, and all messages be lost or late if they are to be.
func (s *simulation) plan(a *actor, lagging, lossy bool) {
	draw := rand.New(rand.NewPCG(s.seed, s.rand.Uint64()))
	upTo := func(d time.Duration) time.Duration { return time.Duration(draw.Int64N(int64(d))) }
	late := upTo(lag)
	a.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
		n := draw.IntN(100)
		switch {
		case n < 20 && writesData(c):
			f.Request = upTo(2 * kit.TTL)
		case lagging && c.Request == nil:
			f.Reply = late
		case !lossy:
		case n < 2:
			f = etcdfake.Fate{LoseRequest: true, Silent: n == 0, Code: codes.Unavailable}
		case n < 4:
			f = etcdfake.Fate{LoseReply: true, Silent: n == 2, Code: codes.Unavailable}
		case n < 5:
			f.Request = upTo(time.Minute)
		}
		return f
	})
}

func writesData(c etcdfake.Call) bool {
	txn, ok := c.Request.(*pb.TxnRequest)
	return ok && len(txn.Success) == 1 && strings.HasPrefix(string(txn.Success[0].GetRequestPut().GetKey()), data)
}

// function is what members call: it writes until its context ends, and returns a moment later; some calls return
// before. Some write once more, long after.
func (s *simulation) function(a *actor) func(context.Context, *shard.Shard) error {
	return func(ctx context.Context, sh *shard.Shard) error {
		s.judge.mu.Lock()
		s.calls++
		draw := rand.New(rand.NewPCG(s.seed, s.calls))
		broken := !s.calm && draw.IntN(10) == 0
		s.judge.mu.Unlock()
		upTo := func(d time.Duration) time.Duration { return time.Duration(draw.Int64N(int64(d))) }
		if s.early(a) {
			s.t.Errorf("%s owns shard %d %v after it has joined", a.name, sh.Index(), time.Since(a.joined))
		}
		h := s.judge.begin(sh, a)
		defer s.judge.end(h)
		if broken {
			time.Sleep(upTo(time.Second))
			return errors.New("broken")
		}
		for ctx.Err() == nil {
			s.judge.write(sh, 0)
			select {
			case <-time.After(upTo(20 * time.Second)):
			case <-ctx.Done():
			}
		}
		if draw.IntN(3) == 0 {
			s.judge.write(stubborn{sh}, upTo(5*time.Second))
		}
		time.Sleep(upTo(300 * time.Millisecond))
		return nil
	}
}
