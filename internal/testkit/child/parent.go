//go:build unix

package child

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Child is a child process, as its parent sees it. Its methods are not safe for concurrent use.
type Child[E any] struct {
	Name string // as given to Start

	cmd     *exec.Cmd
	stdin   io.WriteCloser // its end ends the child
	reports chan report[E] // closed when the child is reaped

	// To be read after reports is closed:
	err    error
	stderr bytes.Buffer
}

// report is a line on a child's stdout.
type report[E any] struct {
	What  string
	Event E
}

// Start starts another process of this program, where Main runs with the given name and job and reports events of type
// E. The caller must finally call Kill or KillAll.
func Start[E, J any](name string, job J) (*Child[E], error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return StartProgram[E](self, name, job)
}

// StartProgram is Start with another program, whose main function calls Main.
func StartProgram[E, J any](program, name string, job J) (_ *Child[E], err error) {
	if _, ok := named(); ok {
		return nil, errors.New("child: a child cannot start children; does it call Main first?")
	}
	c := &Child[E]{Name: name, cmd: exec.Command(program, command, name), reports: make(chan report[E], 16)}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // see the package documentation
	c.cmd.Stderr = &c.stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go c.listen(stdout) // joined by Kill
	if err := c.send(job); err != nil {
		return nil, KillAll(err, c)
	}
	return c, nil
}

// listen forwards the reports of the child, and reaps it.
func (c *Child[E]) listen(stdout io.Reader) {
	defer close(c.reports)
	lines := json.NewDecoder(stdout)
	for {
		var r report[E]
		err := lines.Decode(&r)
		if err == nil {
			c.reports <- r
			continue
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			c.err = fmt.Errorf("it printed something that is not an event: %w", err)
			_ = c.cmd.Process.Kill() // otherwise it would wait for a reader of stdout
		}
		break
	}
	if err := c.cmd.Wait(); c.err == nil {
		c.err = err
	}
}

// PID returns the child's process ID.
func (c *Child[E]) PID() int { return c.cmd.Process.Pid }

// Await waits for the child's next event. It is an error if that is not what, if the child ends, or if ctx ends.
func (c *Child[E]) Await(ctx context.Context, what string) (ev E, err error) {
	select {
	case r, ok := <-c.reports:
		switch {
		case !ok:
			return ev, fmt.Errorf("process %s ended (%s) instead of reporting %q", c.Name, c.status(), what)
		case r.What != what:
			return r.Event, fmt.Errorf("process %s reported %q instead of %q", c.Name, r.What, what)
		}
		return r.Event, nil
	case <-ctx.Done():
		return ev, fmt.Errorf("process %s did not report %q: %w", c.Name, what, context.Cause(ctx))
	}
}

// Exited waits until the child exits. It is an error if it reports an event first, if its exit code is not 0, or if ctx
// ends.
func (c *Child[E]) Exited(ctx context.Context) error {
	select {
	case r, ok := <-c.reports:
		switch {
		case ok:
			return fmt.Errorf("process %s reported %q instead of ending", c.Name, r.What)
		case c.err != nil:
			return fmt.Errorf("process %s ended: %w", c.Name, c.err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("process %s did not end: %w", c.Name, context.Cause(ctx))
	}
}

func (c *Child[E]) status() string {
	if c.err != nil {
		return c.err.Error()
	}
	return "exit status 0"
}

// Tell sends the child a message for Parent.Hear, without waiting for Hear. At most 16 messages may be unread.
func (c *Child[E]) Tell(message string) error { return c.send(message) }

func (c *Child[E]) send(v any) error {
	if err := json.NewEncoder(c.stdin).Encode(v); err != nil {
		return fmt.Errorf("could not write to process %s: %w", c.Name, err)
	}
	return nil
}

// Signal sends a signal to the child. SIGTERM ends the context of work.
func (c *Child[E]) Signal(s os.Signal) error { return c.cmd.Process.Signal(s) }

// Kill kills the child, even if it is stopped, and returns when it is reaped. Events that were not awaited are lost.
// Kill does nothing if the child has ended.
func (c *Child[E]) Kill() {
	_ = c.cmd.Process.Kill() // an error says that it has ended
	for range c.reports {
	}
}

// KillAll kills the children; nil ones are skipped. It returns err, to which it adds what the children have printed to
// stderr unless err is nil.
func KillAll[E any](err error, children ...*Child[E]) error {
	failed := err != nil
	for _, c := range children {
		if c == nil {
			continue
		}
		c.Kill()
		if text := strings.TrimSpace(c.stderr.String()); failed && text != "" {
			err = fmt.Errorf("%w\nstderr of process %s:\n%s", err, c.Name, text)
		}
	}
	return err
}
