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
	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/session"
)

// A process is a child that can be stopped and killed. It has one session, is
// told what to hold, any number of names at once, and says of each what it sees.
type process struct {
	*child.Child[childEvent]
	said map[string][]childEvent // by kind and name: what was not asked for yet
}

const childTTL = 2 * time.Second // as most tests have it

// A childJob is what it is started with.
type childJob struct {
	Endpoints []string
	TTL       time.Duration
}

// An order is what it is told: to hold a name, and to tell of the first Check
// after a pause of that length (0: of none), or of the first that says lost.
type order struct {
	Kind, Name, Owner string
	Pause             time.Duration
}

// A childEvent is what it says.
type childEvent struct {
	Of, What string // kind and name; "failed", or "holds", "checked", "released"
	Err      string

	// Unless it has failed:
	Token fencing.Token `json:",omitzero"`
	Lease clientv3.LeaseID
	Since time.Time // it held by then, and told no earlier

	// Once it has checked:
	Pause  time.Duration // seen before that Check
	Check  string        // what it said: "lost", "suspended", "all is well"
	Writer string        // what a guarded write met when it was no longer suspended
	Etcd   string        // lost: and what it met had it passed the Check: "stale"
	Cause  string        // lost: of the end of the handle's context
	States []holdfast.State
}

// ofAnOrder is what every event is for package child.
const ofAnOrder = "of an order"

func startChild(t *testing.T, endpoints []string, ttl time.Duration) *process {
	t.Helper()
	c, err := child.Start[childEvent]("child", childJob{endpoints, ttl})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unexpected := errors.New("the child has written to stderr")
		if err := child.KillAll(unexpected, c); err != unexpected { // a panic, a data race
			t.Error(err)
		}
	})
	return &process{c, make(map[string][]childEvent)}
}

func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.Stop(deadline(t)); err != nil {
		t.Error(err)
	}
}

func (p *process) goOn(t *testing.T) {
	t.Helper()
	if err := p.Continue(); err != nil {
		t.Error(err)
	}
}

func (p *process) tell(t *testing.T, o order) {
	t.Helper()
	message, err := json.Marshal(o)
	if err == nil {
		err = p.Tell(string(message))
	}
	if err != nil {
		t.Error(err)
	}
}

// hear waits for what it says next of a name.
func (p *process) hear(t *testing.T, kind, name, what string) childEvent {
	t.Helper()
	of := kind + " " + name
	for ctx := deadline(t); len(p.said[of]) == 0; {
		ev, err := p.Await(ctx, ofAnOrder)
		if err != nil {
			t.Errorf("waiting for %q of %s: %v", what, of, err)
			return childEvent{}
		}
		p.said[ev.Of] = append(p.said[ev.Of], ev)
	}
	ev := p.said[of][0]
	p.said[of] = p.said[of][1:]
	if ev.What != what || ev.Err != "" {
		t.Errorf("the child says %+v, want %q", ev, what)
	}
	return ev
}

// beChild is the process itself. Its orders end with it.
func beChild(ctx context.Context, _ string, j childJob, parent *child.Parent[childEvent]) error {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // of refused writes
	cli, err := clientv3.New(clientv3.Config{Endpoints: j.Endpoints, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	states := &stateLog{}
	sess, err := session.New(ctx, cli, &session.Options{TTL: j.TTL, OnStateChange: states.add})
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
		go carryOut(ctx, o, sess, states, parent)
	}
}

func carryOut(ctx context.Context, o order, sess *session.Session, states *stateLog, parent *child.Parent[childEvent]) {
	ev := childEvent{Of: o.Kind + " " + o.Name, What: "failed"}
	h, err := kinds[o.Kind](ctx, sess, o.Name, o.Owner)
	if err != nil {
		ev.Err = err.Error()
		parent.Say(ofAnOrder, ev)
		return
	}
	since := time.Now() // before it can be stopped for what it says
	ev.What, ev.Token, ev.Lease, ev.Since = "holds", h.Token(), sess.Lease(), since
	parent.Say(ofAnOrder, ev)
	hctx, cancel := h.WithContext(ctx)
	defer cancel()
	ev.What = "checked"
	ev.Pause, err = firstCheckAfterAPause(h, since, o.Pause)
	ev.Check = said(err)
	awaitConnected(h)
	_, err = fencing.NewFencedWriter(h).Put(ctx, o.Name+"/data", "by a child")
	ev.Writer = said(err)
	if ev.Check == "lost" {
		_, err = fencing.NewFencedWriter(pausedAfterCheck{h}).Put(ctx, o.Name+"/data", "stale")
		ev.Etcd = said(err)
		<-hctx.Done()
		ev.Cause = said(context.Cause(hctx))
	}
	ev.States = states.seen()
	parent.Say(ofAnOrder, ev)
	ev.What = "released"
	if err := release(ctx, h); err != nil && ev.Check != "lost" {
		ev.Err = err.Error()
	}
	parent.Say(ofAnOrder, ev)
}

// firstCheckAfterAPause calls Check all the time, until a pause of that length
// since last has been seen or the handle is lost, and returns what the first one
// after that said.
func firstCheckAfterAPause(h handle, last time.Time, length time.Duration) (pause time.Duration, err error) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		before := time.Now()
		err := h.Check()
		after := time.Now()
		if after.Sub(before) > length/2 {
			err = h.Check() // the pause was within: that one may have been before it
		}
		if pause := after.Sub(last); length > 0 && pause > length || errors.Is(err, holdfast.ErrLost) {
			return pause, err
		}
		last = after
	}
}

// awaitConnected waits until a handle is not suspended any more: held, or lost.
func awaitConnected(h handle) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for errors.Is(h.Check(), holdfast.ErrSuspended) {
		<-tick.C
	}
}

func said(err error) string {
	switch {
	case err == nil:
		return "all is well"
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

// stateLog is what a session has told.
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
