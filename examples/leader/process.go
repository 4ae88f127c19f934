//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// process is a candidate, as its parent sees it.
type process struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser // it ends with this
	events chan event     // has room for all that a candidate says
	reaped chan struct{}  // closed when it has ended and its exit code is known

	// Read after reaped.
	err    error
	stderr bytes.Buffer
}

// startCandidate runs this program once more, as a candidate.
func startCandidate(name string, j job) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	arg, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	p := &process{
		name: name, cmd: exec.Command(self, candidateCommand, name, string(arg)),
		events: make(chan event, 16), reaped: make(chan struct{}),
	}
	// A group of its own: a Ctrl-C is for the parent, which then ends its
	// candidates.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stderr = &p.stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // joined by end
		defer close(p.reaped)
		defer close(p.events)
		for lines := json.NewDecoder(stdout); ; {
			var ev event
			if lines.Decode(&ev) != nil {
				break
			}
			p.events <- ev
		}
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// await returns the candidate's next event, which must be what.
func (p *process) await(ctx context.Context, what string) (event, error) {
	select {
	case ev, ok := <-p.events:
		switch {
		case !ok:
			<-p.reaped
			return ev, fmt.Errorf("candidate %s ended (%v) instead of reporting %q", p.name, p.cmd.ProcessState, what)
		case ev.What != what:
			return ev, fmt.Errorf("candidate %s reported %q instead of %q", p.name, ev.What, what)
		}
		return ev, nil
	case <-ctx.Done():
		return event{}, fmt.Errorf("candidate %s did not report %q: %w", p.name, what, context.Cause(ctx))
	}
}

// exited waits until the candidate has ended by itself, and returns an error
// unless its exit code is 0.
func (p *process) exited(ctx context.Context) error {
	select {
	case <-p.reaped:
	case <-ctx.Done():
		return fmt.Errorf("candidate %s did not end: %w", p.name, context.Cause(ctx))
	}
	if p.err != nil {
		return fmt.Errorf("candidate %s: %w", p.name, p.err)
	}
	return nil
}

// end kills the candidate if it still runs, and reaps it. If asked to explain,
// it returns what the candidate has written to stderr.
func (p *process) end(explain bool) error {
	_ = p.cmd.Process.Kill() // an error means that it has ended
	<-p.reaped
	if said := strings.TrimSpace(p.stderr.String()); explain && said != "" {
		return fmt.Errorf("candidate %s said:\n%s", p.name, said)
	}
	return nil
}
