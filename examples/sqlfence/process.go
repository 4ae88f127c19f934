//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

// process is a worker, as its parent sees it.
type process struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	events chan event    // has room for all that a worker says
	reaped chan struct{} // closed when it has ended and its exit code is known

	// Read after reaped.
	err    error
	stderr bytes.Buffer
}

// startWorker runs this program once more, as a worker.
func startWorker(name string, j job) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	arg, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	p := &process{
		name: name, cmd: exec.Command(self, workerCommand, name, string(arg)),
		events: make(chan event, 16), reaped: make(chan struct{}),
	}
	// A group of its own: a Ctrl-C is for the parent, which then ends its
	// workers.
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

// await returns the worker's next event, which must be what.
func (p *process) await(ctx context.Context, what string) (event, error) {
	select {
	case ev, ok := <-p.events:
		switch {
		case !ok:
			<-p.reaped
			return ev, fmt.Errorf("worker %s ended (%v) instead of reporting %q", p.name, p.cmd.ProcessState, what)
		case ev.What != what:
			return ev, fmt.Errorf("worker %s reported %q instead of %q", p.name, ev.What, what)
		}
		return ev, nil
	case <-ctx.Done():
		return event{}, fmt.Errorf("worker %s did not report %q: %w", p.name, what, context.Cause(ctx))
	}
}

// stop stops the worker and returns when the kernel says that it has stopped.
func (p *process) stop(ctx context.Context) error {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGCHLD)
	defer signal.Stop(changed)
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return err
		case pid != 0 && status.Stopped():
			return nil
		case pid != 0:
			return errors.New("it has ended")
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// goOn lets the worker go on with its work, stopped or not.
func (p *process) goOn() error {
	if _, err := io.WriteString(p.stdin, "\n"); err != nil {
		return err
	}
	return p.cmd.Process.Signal(syscall.SIGCONT)
}

// exited waits until the worker has ended by itself, and returns an error unless
// its exit code is 0.
func (p *process) exited(ctx context.Context) error {
	select {
	case <-p.reaped:
	case <-ctx.Done():
		return fmt.Errorf("worker %s did not end: %w", p.name, context.Cause(ctx))
	}
	if p.err != nil {
		return fmt.Errorf("worker %s: %w", p.name, p.err)
	}
	return nil
}

// end kills the worker if it still runs, stopped or not, and reaps it. If asked
// to explain, it returns what the worker has written to stderr.
func (p *process) end(explain bool) error {
	if p == nil {
		return nil
	}
	_ = p.cmd.Process.Kill() // an error means that it has ended
	<-p.reaped
	if said := strings.TrimSpace(p.stderr.String()); explain && said != "" {
		return fmt.Errorf("worker %s said:\n%s", p.name, said)
	}
	return nil
}
