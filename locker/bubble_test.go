package locker_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// oneWay is how long a request or an answer travels in a bubble. It must not
// be nothing: what takes no time happens in an order that nobody can place an
// event into.
const oneWay = 5 * time.Millisecond

// The default TTL of 15 s is trusted for 13.5 s, and renewed at three eighths of that.
const (
	trust   = 13500 * time.Millisecond
	renewal = trust * 3 / 8
)

// lockDelay is the default of session.Options.LockDelay.
const lockDelay = time.Second

// inBubble runs a test in virtual time, against an etcd in memory.
func inBubble(t *testing.T, f func(t *testing.T, srv *etcdfake.Server)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		srv := etcdfake.New(nil)
		t.Cleanup(srv.Close) // after the sessions
		f(t, srv)
	})
}

// process is one process: its connection, its session, its clock. The default
// TTL of 15 s is suspended after 6.75 s without a confirmed renewal.
type process struct {
	link   *etcdfake.Link
	sess   *session.Session
	events recorder

	mu      sync.Mutex // protects what follows
	slept   time.Duration
	resumed chan struct{} // nil while the process runs
}

// start starts a process; it ends with the test, healed and running.
func start(t *testing.T, srv *etcdfake.Server) *process {
	t.Helper()
	p := &process{link: srv.Link(), events: make(recorder, 1000)}
	p.link.Delay(oneWay)
	sess, err := session.New(t.Context(), p.link.Client(), &session.Options{
		Clock: p.clock(), OnStateChange: func(ev session.Event) { p.events <- ev }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	p.sess = sess
	t.Cleanup(func() {
		p.heal()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := sess.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return p
}

// clock is the process's clock. Whoever reads it while the process is stopped
// gets an answer when it goes on: nothing is decided in between.
func (p *process) clock() func() time.Duration {
	mono := session.MonotonicClock()
	return func() time.Duration {
		for {
			p.mu.Lock()
			slept, resumed := p.slept, p.resumed
			p.mu.Unlock()
			if resumed == nil {
				return mono() + slept
			}
			<-resumed
		}
	}
}

// stop is SIGSTOP: the process does nothing any more, and what is sent to it
// waits.
func (p *process) stop() {
	p.mu.Lock()
	p.resumed = make(chan struct{})
	p.mu.Unlock()
	p.link.BlackHole()
}

// resume is SIGCONT.
func (p *process) resume() {
	p.heal()
	p.mu.Lock()
	resumed := p.resumed
	p.resumed = nil
	p.mu.Unlock()
	if resumed != nil {
		close(resumed)
	}
}

// heal ends what is wrong with the connection, but not that it takes time.
func (p *process) heal() {
	p.link.Heal()
	p.link.Delay(oneWay)
}

// suspend is the machine's sleep: the clock has gone on, no timer has.
func (p *process) suspend(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slept += d
}

// recorder collects events of a session.
type recorder chan session.Event

// states are the states entered so far.
func (r recorder) states() []holdfast.State {
	synctest.Wait()
	var all []holdfast.State
	for len(r) > 0 {
		all = append(all, (<-r).State)
	}
	return all
}

// standing are the entries of a lock, in order.
func standing(srv *etcdfake.Server, name string) []*mvccpb.KeyValue {
	return srv.Keys("holdfast/lock/" + name + "/@/")
}

// queued waits until a lock has n entries, and whoever put the last has heard.
func queued(t *testing.T, srv *etcdfake.Server, name string, n int) {
	t.Helper()
	for range 100 {
		if len(standing(srv, name)) == n {
			time.Sleep(4 * oneWay) // its answer, and the watch
			return
		}
		time.Sleep(oneWay)
	}
	t.Fatalf("entries of %s: %v, want %d", name, standing(srv, name), n)
}

// owns reports whether a lock is the first entry of its queue in etcd.
func owns(srv *etcdfake.Server, lk *locker.Lock) bool {
	kvs := standing(srv, lk.Name())
	return len(kvs) > 0 && string(kvs[0].Key) == lk.Key() && kvs[0].CreateRevision == int64(lk.Token())
}
