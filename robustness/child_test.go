package robustness

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/session"
)

// A child is a process of its own, which can be stopped and killed: this test
// binary, run again for TestChildProcess alone. It has one session. It is told
// by lines on stdin what to hold, any number of names at once, and says by lines
// on stdout what it sees.
type child struct {
	cmd   *exec.Cmd
	in    *json.Encoder
	ended chan struct{} // closed when it has ended and all it said is in says

	mu   sync.Mutex // protects says
	says map[string]chan childEvent
}

const (
	childEnv = "HOLDFAST_TEST_CHILD" // its environment: endpoints, then the TTL
	childTTL = 2 * time.Second       // as most tests have it
)

// An order is a line on a child's stdin: hold a name, and tell of the first
// Check after a pause of that length (0: of none), or of the first that says
// lost.
type order struct {
	Kind, Name, Owner string
	Pause             time.Duration
}

// A childEvent is a line on its stdout.
type childEvent struct {
	Of, What string // kind and name; "holds", "checked", "released"
	Token    fencing.Token
	Lease    clientv3.LeaseID
	Err      string

	// Once it has checked:
	Pause  time.Duration // seen before that Check
	Check  string        // what it said: "lost", "suspended", "all is well"
	Writer string        // what a guarded write met when it was no longer suspended
	Etcd   string        // lost: and what it met had it passed the Check: "stale"
	Cause  string        // lost: of the end of the handle's context
	States []session.State
}

func startChild(t *testing.T, endpoints []string, ttl time.Duration) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChildProcess$")
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(endpoints, ",")+","+ttl.String())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: cmd, in: json.NewEncoder(in), ended: make(chan struct{}), says: make(map[string]chan childEvent)}
	go func() { // joined in kill
		defer close(c.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var ev childEvent
			if json.Unmarshal(lines.Bytes(), &ev) == nil {
				c.of(ev.Of) <- ev
			}
		}
	}()
	t.Cleanup(c.kill)
	return c
}

// of is what it says of one order.
func (c *child) of(order string) chan childEvent {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.says[order] == nil {
		c.says[order] = make(chan childEvent, 8) // more than there are
	}
	return c.says[order]
}

// kill ends it as a crash does. Idempotent.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.ended
	_ = c.cmd.Wait() // "signal: killed"
}

func (c *child) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		t.Error(err)
	}
}

func (c *child) tell(t *testing.T, o order) {
	t.Helper()
	if err := c.in.Encode(o); err != nil {
		t.Error(err)
	}
}

// hear waits for what it says next of a name.
func (c *child) hear(t *testing.T, kind, name, what string) childEvent {
	t.Helper()
	select {
	case ev := <-c.of(kind + " " + name):
		if ev.What != what || ev.Err != "" {
			t.Errorf("the child says %+v, want %q", ev, what)
		}
		return ev
	case <-c.ended:
		t.Errorf("the child has ended, instead of saying %q of %s %s", what, kind, name)
	case <-deadline(t).Done():
		t.Errorf("the child does not say %q of %s %s", what, kind, name)
	}
	return childEvent{}
}

// The process itself. As a test among others there is nothing for it to do.
func TestChildProcess(t *testing.T) {
	args := strings.Split(os.Getenv(childEnv), ",")
	if len(args) < 2 {
		return
	}
	endpoints := args[:len(args)-1]
	ttl, err := time.ParseDuration(args[len(endpoints)])
	if err != nil {
		t.Fatal(err)
	}
	cli, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close()
	states := &stateLog{}
	sess := open(t, cli, session.Options{TTL: ttl, OnStateChange: states.add})

	var mu sync.Mutex // protects out
	out := json.NewEncoder(os.Stdout)
	say := func(ev childEvent) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(ev)
	}
	var orders sync.WaitGroup
	defer orders.Wait()
	for in := json.NewDecoder(os.Stdin); ; {
		var o order
		if errors.Is(in.Decode(&o), io.EOF) {
			return
		}
		orders.Go(func() {
			h, err := kinds[o.Kind](context.Background(), sess, o.Name, o.Owner)
			if err != nil {
				say(childEvent{Of: o.Kind + " " + o.Name, What: "failed", Err: err.Error()})
				return
			}
			ev := childEvent{Of: o.Kind + " " + o.Name, What: "holds", Token: h.Token(), Lease: sess.Lease()}
			since := time.Now() // before it can be stopped for what it says
			say(ev)
			ctx, cancel := h.Context(context.Background())
			defer cancel()
			ev.What = "checked"
			ev.Pause, err = firstCheckAfterAPause(h, since, o.Pause)
			ev.Check = said(err)
			awaitConnected(h)
			_, err = fencing.NewFencedWriter(h).Put(context.Background(), o.Name+"/data", "by a child")
			ev.Writer = said(err)
			if ev.Check == "lost" {
				_, err = fencing.NewFencedWriter(pausedAfterCheck{h}).Put(context.Background(), o.Name+"/data", "stale")
				ev.Etcd = said(err)
				<-ctx.Done()
				ev.Cause = said(context.Cause(ctx))
			}
			ev.States = states.seen()
			say(ev)
			ev.What = "released"
			if err := release(context.Background(), h); err != nil && ev.Check != "lost" {
				ev.Err = err.Error()
			}
			say(ev)
		})
	}
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
		if pause := after.Sub(last); length > 0 && pause > length || errors.Is(err, session.ErrLost) {
			return pause, err
		}
		last = after
	}
}

// awaitConnected waits until a handle is not suspended any more: held, or lost.
func awaitConnected(h handle) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for errors.Is(h.Check(), session.ErrSuspended) {
		<-tick.C
	}
}

func said(err error) string {
	switch {
	case err == nil:
		return "all is well"
	case errors.Is(err, session.ErrLost):
		return "lost"
	case errors.Is(err, session.ErrSuspended):
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
	all []session.State
}

func (l *stateLog) add(ev session.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, ev.State)
}

func (l *stateLog) seen() []session.State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]session.State(nil), l.all...)
}
