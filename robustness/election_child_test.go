package robustness

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/session"
)

// A candidate is a process of its own, which can be stopped and killed: this
// test binary, run again for TestElectionCandidateProcess alone. It is told by
// a line on stdin which election to lead, and says by lines on stdout what it
// sees.
type candidate struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	says  chan candidateEvent
	ended chan struct{} // closed when it has ended and all it said is in says
}

const (
	candidateEndpoints = "HOLDFAST_TEST_CANDIDATE" // its environment
	candidateTTL       = 2 * time.Second
)

type candidateEvent struct {
	What   string
	Token  fencing.Token `json:",omitzero"`
	Pause  time.Duration // seen before its first Check
	Check  string        // what that said: "lost", or whatever else
	Writer string        // what its guarded write met: likewise
	Etcd   string        // and what had it passed the Check: "stale"
	Cause  string        // of the end of its function's context
	Err    string
}

func startCandidate(t *testing.T, endpoints []string) *candidate {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestElectionCandidateProcess$")
	cmd.Env = append(os.Environ(), candidateEndpoints+"="+strings.Join(endpoints, ","))
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
	c := &candidate{cmd, in, make(chan candidateEvent, 16), make(chan struct{})}
	go func() { // joined in kill
		defer close(c.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var ev candidateEvent
			if json.Unmarshal(lines.Bytes(), &ev) == nil {
				c.says <- ev
			}
		}
	}()
	t.Cleanup(c.kill)
	return c
}

// kill ends it as a crash does. Idempotent.
func (c *candidate) kill() {
	_ = c.cmd.Process.Kill()
	<-c.ended
	_ = c.cmd.Wait() // "signal: killed"
}

func (c *candidate) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		t.Error(err)
	}
}

func (c *candidate) lead(t *testing.T, name string) {
	t.Helper()
	if _, err := fmt.Fprintln(c.in, name); err != nil {
		t.Error(err)
	}
}

// hear waits for what it says next.
func (c *candidate) hear(t *testing.T, what string) candidateEvent {
	t.Helper()
	select {
	case ev := <-c.says:
		if ev.What != what {
			t.Errorf("the candidate says %+v, want %q", ev, what)
		}
		return ev
	case <-c.ended:
		t.Errorf("the candidate has ended, instead of saying %q", what)
	case <-deadline(t).Done():
		t.Errorf("the candidate does not say %q", what)
	}
	return candidateEvent{}
}

// The process itself. As a test among others there is nothing for it to do.
func TestElectionCandidateProcess(t *testing.T) {
	endpoints := os.Getenv(candidateEndpoints)
	if endpoints == "" {
		return
	}
	cli, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(endpoints, ","), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close()
	sess := open(t, cli, session.Options{TTL: candidateTTL})
	say := json.NewEncoder(os.Stdout)
	for names := bufio.NewScanner(os.Stdin); names.Scan(); {
		err := election.New(sess, names.Text()).RunWhileLeader(context.Background(), "candidate", func(ctx context.Context, term *election.Term) error {
			began := time.Now()
			_ = say.Encode(candidateEvent{What: "leads", Token: term.Token()})
			ev := firstCheckAfterAPause(term, began)
			w := fencing.NewFencedWriter(term)
			_, err := w.Put(ctx, names.Text()+"/data", "stale")
			ev.Writer = said(err)
			// context.WithoutCancel: as if it had not been told of the end.
			_, err = fencing.NewFencedWriter(pausedAfterCheck{term}).Put(context.WithoutCancel(ctx), names.Text()+"/data", "stale")
			ev.Etcd = said(err)
			<-ctx.Done()
			ev.Cause = said(context.Cause(ctx))
			_ = say.Encode(ev)
			return nil
		})
		_ = say.Encode(candidateEvent{What: "returned", Err: said(err)})
	}
}

// firstCheckAfterAPause calls Check all the time, until it says that the term
// is lost or until a pause has been seen, and tells of the first after that.
func firstCheckAfterAPause(term *election.Term, last time.Time) candidateEvent {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		before := time.Now()
		err := term.Check()
		after := time.Now()
		if after.Sub(before) > candidateTTL/2 {
			err = term.Check() // the pause was within: that one may have been before it
		}
		if pause := after.Sub(last); pause > candidateTTL/2 || errors.Is(err, session.ErrLost) {
			return candidateEvent{What: "checked", Token: term.Token(), Pause: pause, Check: said(err)}
		}
		last = after
	}
}

func said(err error) string {
	switch {
	case err == nil:
		return "all is well"
	case errors.Is(err, session.ErrLost):
		return "lost"
	case errors.Is(err, fencing.ErrStale):
		return "stale"
	default:
		return err.Error()
	}
}

// pausedAfterCheck is a term as it looks to code that was paused right after
// it had checked.
type pausedAfterCheck struct{ *election.Term }

func (pausedAfterCheck) Check() error { return nil }

// stopped leads an election in c, stops c until next leads, and lets it go on.
// It returns what c found then.
func stopped(t *testing.T, c *candidate, next *election.Election) (candidateEvent, *election.Term) {
	t.Helper()
	c.lead(t, next.Name())
	c.hear(t, "leads")
	c.signal(t, syscall.SIGSTOP)
	term, err := next.Campaign(deadline(t), "next")
	c.signal(t, syscall.SIGCONT)
	if err != nil {
		t.Error(err)
		return candidateEvent{}, nil
	}
	ev := c.hear(t, "checked")
	c.hear(t, "returned")
	return ev, term
}
