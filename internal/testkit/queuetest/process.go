package queuetest

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/session"
)

// Process is one process: its connection, its session, its clock.
type Process struct {
	Link *etcdfake.Link
	KV   *RefusingKV // of Start only
	Sess *session.Session
	Host *lease.Host // of Sess

	// Renewal is the time from the Grant to the first renewal, and from each renewal
	// to the next.
	Renewal time.Duration

	events chan session.Event

	mu      sync.Mutex // protects what follows
	sent    map[string]int
	slept   time.Duration
	resumed chan struct{} // nil while the process runs
}

// Start starts a process, whose options may be changed. It ends with the test, when
// its connection is healed.
func Start(t *testing.T, srv *etcdfake.Server, change ...func(*session.Options)) *Process {
	t.Helper()
	return StartIn(t.Context(), t, srv, change...)
}

// StartIn is Start with a context for the session.
func StartIn(ctx context.Context, t *testing.T, srv *etcdfake.Server, change ...func(*session.Options)) *Process {
	t.Helper()
	link := srv.Link()
	cli := link.Client()
	kv := &RefusingKV{KVClient: link.KVClient()}
	cli.KV = clientv3.NewKVFromKVClient(kv, cli)
	p := startOn(ctx, t, link, cli, change...)
	p.KV = kv
	t.Cleanup(func() { kv.Refuse(nil) }) // before the session is closed
	return p
}

// StartReplaced starts a process whose program has replaced the client's KV: etcd's client repeats its requests, and
// the session does not notice.
func StartReplaced(t *testing.T, srv *etcdfake.Server, change ...func(*session.Options)) *Process {
	t.Helper()
	link := srv.Link()
	cli := link.Client()
	cli.KV = struct{ clientv3.KV }{cli.KV}
	return StartOn(t, link, cli, change...)
}

// StartOn is Start with a client, for a link of the same server.
func StartOn(t *testing.T, link *etcdfake.Link, cli *clientv3.Client, change ...func(*session.Options)) *Process {
	t.Helper()
	return startOn(t.Context(), t, link, cli, change...)
}

func startOn(
	ctx context.Context, t *testing.T, link *etcdfake.Link, cli *clientv3.Client, change ...func(*session.Options),
) *Process {
	t.Helper()
	p := &Process{Link: link, events: make(chan session.Event, 1000)}
	p.Link.Delay(OneWay)
	o := session.Options{
		TTL: TTL, DriftMargin: Margin, LockDelay: LockDelay, CloseTimeout: CloseTimeout,
		Clock: p.clock(), Logger: slog.New(slog.DiscardHandler),
		OnStateChange: func(ev session.Event) { p.events <- ev },
	}
	for _, f := range change {
		f(&o)
	}
	granted := time.Now()
	sess, err := session.New(ctx, cli, o)
	if err != nil {
		t.Fatal(err)
	}
	p.Sess, p.Host = sess, lease.Open(sess)
	p.Renewal = time.Since(granted) + p.Host.Lease().UntilRenewal()
	t.Cleanup(func() {
		p.Heal()
		if err := sess.Close(Within(t, time.Minute)); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return p
}

// Heal repairs the connection. Messages still take OneWay.
func (p *Process) Heal() {
	p.Link.Heal()
	p.Link.Delay(OneWay)
}

// SessionKey is the session key of the present lease.
func (p *Process) SessionKey() string { return p.Host.Lease().Key() }

// GateMoves returns how often the session has put its session key again.
func (p *Process) GateMoves(srv *etcdfake.Server) int {
	return len(srv.History(p.SessionKey())) - 1
}

// clock is the clock of the process. While the process is stopped, it does not answer:
// so the process decides nothing.
func (p *Process) clock() func() time.Duration {
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

// Stop is SIGSTOP: the process does nothing, and messages to it wait.
func (p *Process) Stop() {
	p.mu.Lock()
	p.resumed = make(chan struct{})
	p.mu.Unlock()
	p.Link.BlackHole()
}

// Resume is SIGCONT.
func (p *Process) Resume() {
	p.Heal()
	p.mu.Lock()
	resumed := p.resumed
	p.resumed = nil
	p.mu.Unlock()
	if resumed != nil {
		close(resumed)
	}
}

// Suspend is the machine's sleep: the clock advances by d, and no timer has fired.
func (p *Process) Suspend(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slept += d
}

// States returns the states that the session has entered since the last call.
func (p *Process) States() (all []holdfast.State) {
	synctest.Wait()
	for len(p.events) > 0 {
		all = append(all, (<-p.events).State)
	}
	return all
}

// Within returns a context that ends after d, or with the test.
func Within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}
