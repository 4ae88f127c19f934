package robustness

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/session"
)

// A process is a child process that can be paused and killed. It has one session,
// acquires the names that it is ordered to hold, and reports events for each.
type process struct {
	*child.Child[childEvent]
	pending map[string][]childEvent // by kind and name: received, not yet returned by expect
}

const childTTL = 2 * time.Second

// A childJob is the argument of runChild.
type childJob struct {
	Endpoints []string
	TTL       time.Duration
}

// An order makes the child acquire Name and report the first Check after a pause
// of at least Pause, or the first that returns ErrLost. Without a Pause only a
// loss is reported.
type order struct {
	Kind, Name, Owner string
	Pause             time.Duration
}

// A childEvent is a report of the child.
type childEvent struct {
	Of   string // kind and name
	What string // "failed", "holds", "checked" or "released"
	Err  string

	// Unless What is "failed":
	Token holdfast.Token `json:",omitzero"`
	Lease clientv3.LeaseID
	Since time.Time // after the acquisition, before its report

	// From "checked" on:
	Pause  time.Duration // measured before that Check
	Check  string        // its result, as outcome returns it
	Writer string        // result of a guarded write once the session was not suspended
	Etcd   string        // if lost: result of a guarded write that skips Check
	Cause  string        // if lost: why the hold's context ended
	States []holdfast.State
}

// orderEvents is the one kind of event that package child carries here.
const orderEvents = "order events"

func startChild(t *testing.T, endpoints []string, ttl time.Duration) *process {
	t.Helper()
	c, err := child.Start[childEvent]("child", childJob{endpoints, ttl})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unexpected := errors.New("the child wrote to stderr")
		if err := child.KillAll(unexpected, c); err != unexpected { // a panic, a data race
			t.Error(err)
		}
	})
	return &process{c, make(map[string][]childEvent)}
}

func (p *process) pause(t *testing.T) {
	t.Helper()
	if err := p.Stop(deadline(t)); err != nil {
		t.Error(err)
	}
}

func (p *process) resume(t *testing.T) {
	t.Helper()
	if err := p.Continue(); err != nil {
		t.Error(err)
	}
}

func (p *process) order(t *testing.T, o order) {
	t.Helper()
	message, err := json.Marshal(o)
	if err == nil {
		err = p.Tell(string(message))
	}
	if err != nil {
		t.Error(err)
	}
}

// expect waits for the next event of that name, and compares it with what.
func (p *process) expect(t *testing.T, kind, name, what string) childEvent {
	t.Helper()
	of := kind + " " + name
	for ctx := deadline(t); len(p.pending[of]) == 0; {
		ev, err := p.Await(ctx, orderEvents)
		if err != nil {
			t.Errorf("waiting for %q of %s: %v", what, of, err)
			return childEvent{}
		}
		p.pending[ev.Of] = append(p.pending[ev.Of], ev)
	}
	ev := p.pending[of][0]
	p.pending[of] = p.pending[of][1:]
	if ev.What != what || ev.Err != "" {
		t.Errorf("the child reported %+v, want %q", ev, what)
	}
	return ev
}

// runChild is the main function of the child. Goroutines of its orders end with
// the process.
func runChild(ctx context.Context, _ string, j childJob, parent *child.Parent[childEvent]) error {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // refused writes are logged, and stderr fails the test
	cli, err := clientv3.New(clientv3.Config{Endpoints: j.Endpoints, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	states := &stateLog{}
	sess, err := session.New(ctx, cli, session.Options{TTL: j.TTL, OnStateChange: states.add})
	if err != nil {
		return err
	}
	for {
		message, err := parent.Hear(ctx)
		if err != nil {
			return err
		}
		var o order
		if err := json.Unmarshal([]byte(message), &o); err != nil {
			return err
		}
		go execute(ctx, o, sess, states, parent)
	}
}

func execute(ctx context.Context, o order, sess *session.Session, states *stateLog, parent *child.Parent[childEvent]) {
	ev := childEvent{Of: o.Kind + " " + o.Name, What: "failed"}
	h, err := kinds[o.Kind](ctx, sess, o.Name, o.Owner)
	if err != nil {
		ev.Err = err.Error()
		parent.Say(orderEvents, ev)
		return
	}
	since := time.Now() // before the report, upon which the test may pause this process
	ev.What, ev.Token, ev.Lease, ev.Since = "holds", h.Token(), sess.Lease(), since
	parent.Say(orderEvents, ev)
	hctx, cancel := h.WithContext(ctx)
	defer cancel()
	ev.What = "checked"
	ev.Pause, err = firstCheckAfterAPause(h, since, o.Pause)
	ev.Check = outcome(err)
	awaitConnected(h)
	_, err = etcdfence.NewWriter(h).Put(ctx, o.Name+"/data", "by a child")
	ev.Writer = outcome(err)
	if ev.Check == "lost" {
		_, err = etcdfence.NewWriter(pausedAfterCheck{h}).Put(ctx, o.Name+"/data", "stale")
		ev.Etcd = outcome(err)
		<-hctx.Done()
		ev.Cause = outcome(context.Cause(hctx))
	}
	ev.States = states.seen()
	parent.Say(orderEvents, ev)
	ev.What = "released"
	if err := release(ctx, h); err != nil && ev.Check != "lost" {
		ev.Err = err.Error()
	}
	parent.Say(orderEvents, ev)
}

// firstCheckAfterAPause calls Check each millisecond until two calls are more than
// length apart or the hold is lost. It returns how far apart they were and the
// result of the last.
func firstCheckAfterAPause(h hold, last time.Time, length time.Duration) (pause time.Duration, err error) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		before := time.Now()
		err := h.Check()
		after := time.Now()
		if after.Sub(before) > length/2 {
			err = h.Check() // the process was paused during Check, which may have decided before that
		}
		if pause := after.Sub(last); length > 0 && pause > length || errors.Is(err, holdfast.ErrLost) {
			return pause, err
		}
		last = after
	}
}

// awaitConnected waits until a hold is no longer suspended: it is held or lost.
func awaitConnected(h hold) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for errors.Is(h.Check(), holdfast.ErrSuspended) {
		<-tick.C
	}
}

// outcome names the result of a Check or a guarded write.
func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, holdfast.ErrLost):
		return "lost"
	case errors.Is(err, holdfast.ErrSuspended):
		return "suspended"
	case errors.Is(err, fencing.ErrStale):
		return "stale"
	default:
		return err.Error()
	}
}

// stateLog records the states that a session has published.
type stateLog struct {
	mu  sync.Mutex // protects all
	all []holdfast.State
}

func (l *stateLog) add(ev session.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, ev.State)
}

func (l *stateLog) seen() []holdfast.State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]holdfast.State(nil), l.all...)
}
