//go:build unix

package child

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// Stop stops the child (SIGSTOP), and returns when all its threads are stopped.
func (c *Child[E]) Stop(ctx context.Context) error {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGCHLD)
	defer signal.Stop(changed)
	if err := c.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(c.PID(), &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return err
		case pid != 0 && status.Stopped():
			return nil
		case pid != 0:
			return errors.New("the child has ended")
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Continue continues a stopped child (SIGCONT).
func (c *Child[E]) Continue() error { return c.Signal(syscall.SIGCONT) }
