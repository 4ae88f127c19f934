package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/session"
)

// holder is a lock or a term.
type holder interface {
	fencing.Source
	Done() <-chan struct{}
	Name() string
	Key() string
	Lease() clientv3.LeaseID
}

// supervisor runs a command while a lock is held or a term lasts, and never longer.
type supervisor struct {
	signals *signals
	sess    *session.Session
	argv    []string
	path    string

	termAfter time.Duration // 0: a third of the time between suspension and loss
	drain     time.Duration
	maxHold   time.Duration // 0: no limit

	ending bool // SIGTERM or SIGINT came, and was forwarded to the command
}

func (s *supervisor) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.DurationVar(&s.termAfter, "term-after", 0,
		"`time` from a suspension to SIGTERM (default a third of that to the loss)")
	f.DurationVar(&s.drain, "drain", 10*time.Second,
		"`time` from SIGTERM to SIGKILL where the lock is still held")
}

// stopped is why holdfast has stopped a command.
type stopped struct {
	code int
	err  error
}

var errMaxHold = errors.New("--max-hold is over")

// run runs the command once. The exit code is the command's own, and why is nil, unless holdfast has stopped it or the
// lock was lost meanwhile.
func (s *supervisor) run(h holder, env ...string) (code int, why *stopped, err error) {
	got, stop, ok := s.signals.forward()
	if !ok {
		return 0, nil, errEnded
	}
	defer stop()
	states, unsubscribe := s.states()
	defer unsubscribe()
	if err := h.Check(); errors.Is(err, holdfast.ErrLost) {
		return 0, &stopped{exitLost, err}, nil
	}
	c, err := startChild(s.path, s.argv, append(os.Environ(), s.environment(h, env)...))
	if err != nil {
		return 0, nil, err
	}
	defer c.release()

	var termAt, killAt <-chan time.Time
	var gone <-chan struct{}
	if s.sess.State() == holdfast.Suspended {
		termAt = s.suspended()
	}
	lost := h.Done()
	overdue := after(s.maxHold)
	for {
		select {
		case status := <-c.ended:
			if why != nil {
				c.kill() // what the command has left behind
				return why.code, why, nil
			}
			if err := h.Check(); errors.Is(err, holdfast.ErrLost) {
				return exitLost, &stopped{exitLost, err}, nil
			}
			return codeOf(status), nil, nil

		case <-lost:
			lost = nil
			why = &stopped{exitLost, h.Check()}
			if isKicked(why.err) {
				s.say(h, "SIGTERM to the command: %v; SIGKILL in %v", why.err, s.drain)
				c.terminate()
				killAt = after(s.drain)
				taken, stop := s.taken(h)
				defer stop()
				gone = taken
				continue
			}
			s.say(h, "SIGKILL to the command: %v", why.err) // another client may hold soon: no time for SIGTERM
			c.kill()
		case <-gone:
			gone = nil
			s.say(h, "SIGKILL to the command: the lock is free although it still runs")
			c.kill()
		case state := <-states:
			switch {
			case state == holdfast.Suspended:
				termAt = s.suspended()
			case state == holdfast.Lost: // also of a lock that was kicked before
				c.kill()
			}
		case <-termAt:
			termAt = nil
			if err := h.Check(); err != nil && why == nil { // nil: it was connected again in time
				why = &stopped{exitLost, err}
				s.say(h, "SIGTERM to the command: %v; SIGKILL in %v", err, round(min(s.sess.Remaining(), s.drain)))
				c.terminate()
				killAt = after(s.drain)
			}
		case <-overdue:
			if why == nil {
				why = &stopped{exitMaxHold, errMaxHold}
				s.say(h, "SIGTERM to the command: %v; SIGKILL in %v", why.err, s.drain)
				c.terminate()
				killAt = after(s.drain)
			}
		case <-killAt:
			c.kill()

		case sig := <-got:
			s.ending = s.ending || sig == syscall.SIGTERM || sig == os.Interrupt
			c.signal(sig)
		case <-c.paused:
			c.pause()
			if errors.Is(h.Check(), holdfast.ErrLost) { // judged by the clock, which went on
				c.kill()
			} else {
				c.resume()
			}
		}
	}
}

// isKicked reports whether a hold has ended because an administrator asked for that. The name is still taken then.
func isKicked(err error) bool {
	var lost *holdfast.LostError
	return errors.As(err, &lost) && lost.Cause == holdfast.CauseKicked
}

// lookAgain is how often the entry of a hold that was kicked is looked at.
const lookAgain = 500 * time.Millisecond

// taken returns a channel that is closed when the entry of a hold that has ended does not keep the name taken any more:
// it is gone, or an administrator takes it away after all. Stop it when the command has ended.
func (s *supervisor) taken(h holder) (gone <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	found, joined := make(chan struct{}), make(chan struct{})
	go func() { // joined by stop
		defer close(joined)
		for {
			look, over := context.WithTimeout(ctx, lookAgain)
			resp, err := s.sess.Client().Get(look, h.Key())
			over()
			if err == nil && (len(resp.Kvs) == 0 || clientv3.LeaseID(resp.Kvs[0].Lease) != h.Lease()) {
				close(found)
				return
			}
			select {
			case <-time.After(lookAgain):
			case <-ctx.Done():
				return
			}
		}
	}()
	return found, func() { cancel(); <-joined }
}

// errEnded says that a signal came before the command was started.
var errEnded = errors.New("ended by a signal")

// states returns the states that the session enters from now on.
func (s *supervisor) states() (<-chan holdfast.State, func()) {
	entered := make(chan holdfast.State)
	over := make(chan struct{})
	cancel := s.sess.Subscribe(func(ev session.Event) {
		select {
		case entered <- ev.State:
		case <-over:
		}
	})
	return entered, func() { close(over); cancel() }
}

// suspended returns when a suspension that begins now has lasted for too long.
func (s *supervisor) suspended() <-chan time.Time {
	if s.termAfter > 0 {
		return time.After(s.termAfter)
	}
	return time.After(s.sess.Remaining() / 3)
}

// environment is what a command is told about its lock.
func (s *supervisor) environment(h holder, more []string) []string {
	return append([]string{
		"HOLDFAST_NAME=" + h.Name(),
		"HOLDFAST_TOKEN=" + h.Token().String(),
		"HOLDFAST_KEY=" + h.Key(),
		"HOLDFAST_LEASE=" + strconv.FormatInt(int64(h.Lease()), 16),
		"HOLDFAST_NAMESPACE=" + s.sess.Namespace(),
	}, more...)
}

// say tells the operator what is done to the command.
func (s *supervisor) say(h holder, format string, args ...any) {
	fmt.Fprintf(os.Stderr, "holdfast: %s: %s\n", clean(h.Name(), 0), fmt.Sprintf(format, args...))
}

// after is time.After, or never for 0.
func after(d time.Duration) <-chan time.Time {
	if d <= 0 {
		return nil
	}
	return time.After(d)
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
