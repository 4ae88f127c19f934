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

// Child is a process of this program, as its parent sees it. Its methods are not for concurrent use.
type Child[E any] struct {
	// Name is what Start was told.
	Name string

	cmd   *exec.Cmd
	stdin io.WriteCloser // the child ends with this
	said  chan said[E]   // closed when the child has been reaped

	// Read after said is closed.
	err    error
	stderr bytes.Buffer
}

// said is one line that a child prints.
type said[E any] struct {
	What  string
	Event E
}

// Start runs this program once more. There, Main does the job that is given here, and reports events of type E.
//
// The caller must call Kill or KillAll in the end.
func Start[E, J any](name string, job J) (*Child[E], error) {
	if _, ok := named(); ok {
		return nil, errors.New("child: a child starts no children; has it not called Main?")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &Child[E]{Name: name, cmd: exec.Command(self, command, name), said: make(chan said[E], 16)}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // see the package's comment
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

// listen hands on what the child says, and reaps it.
func (c *Child[E]) listen(stdout io.Reader) {
	defer close(c.said)
	lines := json.NewDecoder(stdout)
	for {
		var s said[E]
		err := lines.Decode(&s)
		if err == nil {
			c.said <- s
			continue
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			c.err = fmt.Errorf("it printed what is no event: %w", err)
			_ = c.cmd.Process.Kill() // it would wait for a reader
		}
		break
	}
	if err := c.cmd.Wait(); c.err == nil {
		c.err = err
	}
}

// PID is the child's process ID.
func (c *Child[E]) PID() int { return c.cmd.Process.Pid }

// Await returns the next event, which must be what.
func (c *Child[E]) Await(ctx context.Context, what string) (ev E, err error) {
	select {
	case s, ok := <-c.said:
		switch {
		case !ok:
			return ev, fmt.Errorf("process %s ended (%s) instead of reporting %q", c.Name, c.how(), what)
		case s.What != what:
			return s.Event, fmt.Errorf("process %s reported %q instead of %q", c.Name, s.What, what)
		}
		return s.Event, nil
	case <-ctx.Done():
		return ev, fmt.Errorf("process %s did not report %q: %w", c.Name, what, context.Cause(ctx))
	}
}

// Exited waits until the child has ended by itself, which must be what it does next. It returns an error unless the exit
// code is 0.
func (c *Child[E]) Exited(ctx context.Context) error {
	select {
	case s, ok := <-c.said:
		switch {
		case ok:
			return fmt.Errorf("process %s reported %q instead of ending", c.Name, s.What)
		case c.err != nil:
			return fmt.Errorf("process %s ended: %w", c.Name, c.err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("process %s did not end: %w", c.Name, context.Cause(ctx))
	}
}

func (c *Child[E]) how() string {
	if c.err != nil {
		return c.err.Error()
	}
	return "exit status 0"
}

// Tell sends the child a message, for Parent.Hear. It does not wait until that is heard.
func (c *Child[E]) Tell(message string) error { return c.send(message) }

func (c *Child[E]) send(v any) error {
	if err := json.NewEncoder(c.stdin).Encode(v); err != nil {
		return fmt.Errorf("process %s hears nothing: %w", c.Name, err)
	}
	return nil
}

// Signal sends the child a signal. SIGTERM ends the context of its work.
func (c *Child[E]) Signal(s os.Signal) error { return c.cmd.Process.Signal(s) }

// Kill ends the child as a crash does, stopped or not, and returns when it is reaped. Events that were not awaited are
// lost. It can be called again, and when the child has ended already.
func (c *Child[E]) Kill() {
	_ = c.cmd.Process.Kill() // an error means that it has ended
	for range c.said {
	}
}

// KillAll kills the children, those that are not nil. It returns err, and if there is one, with what they have written
// to stderr.
func KillAll[E any](err error, children ...*Child[E]) error {
	failed := err != nil
	for _, c := range children {
		if c == nil {
			continue
		}
		c.Kill()
		if text := strings.TrimSpace(c.stderr.String()); failed && text != "" {
			err = fmt.Errorf("%w\nprocess %s said:\n%s", err, c.Name, text)
		}
	}
	return err
}
