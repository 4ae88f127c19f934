package main

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/session"
)

// halfAliveFor is for how long a leader may lead without all of its services.
const halfAliveFor = 5 * time.Second

var errDatabase = errors.New("the database does not answer")

// services are what a leader starts, one after the other.
type services struct {
	broken  bool // the second one fails to start
	running int
}

func (s *services) start() error {
	for s.running < 2 {
		if s.running == 1 && s.broken {
			return errDatabase
		}
		s.running++
	}
	return nil
}

// A model of a leader that logs the first service which fails to start, and goes on leading.
func halfAlive(ctx context.Context, l *lab) (outcome, error) {
	first, second, err := l.upstreams(60, 60)
	if err != nil {
		return outcome{}, err
	}
	if err := concurrency.NewElection(first, "x").Campaign(ctx, "first"); err != nil {
		return outcome{}, err
	}
	s := services{broken: true}
	if err := s.start(); !errors.Is(err, errDatabase) { // it is logged
		return outcome{}, err
	}
	within, cancel := context.WithTimeout(ctx, halfAliveFor)
	defer cancel()
	if concurrency.NewElection(second, "x").Campaign(within, "second") == nil {
		return heldWith("the other candidate leads")
	}
	return failedWith("the leader ran %d of 2 services, and the other candidate, whose services start, waited for %v",
		s.running, halfAliveFor)
}

func halfAliveHere(ctx context.Context, l *lab) (outcome, error) {
	first, second, err := l.sessions(ctx, session.DefaultTTL, session.DefaultTTL)
	if err != nil {
		return outcome{}, err
	}
	failed, alive := make(chan time.Time, 1), make(chan time.Time, 1)
	lead := func(sess *session.Session, broken bool) func() error {
		el := election.New(sess, "x").With(election.Options{Value: "a"})
		return func() error {
			for ctx.Err() == nil {
				_ = el.Run(ctx, func(ctx context.Context, _ *election.Term) error {
					s := services{broken: broken}
					if err := s.start(); err != nil {
						now(failed)
						return err // Run resigns, and returns it
					}
					now(alive)
					<-ctx.Done()
					return nil
				})
			}
			return nil
		}
	}
	l.background(lead(first, true))
	began, err := receive(ctx, failed)
	if err != nil {
		return outcome{}, err
	}
	l.background(lead(second, false))
	at, err := receive(ctx, alive)
	if err != nil {
		return outcome{}, err
	}
	if took := at.Sub(began); took > halfAliveFor {
		return failedWith("all services ran only %v after some had failed to start", ms(took))
	}
	return heldWith("the leader whose services failed to start resigned, and %v later all ran on the next one",
		ms(at.Sub(began)))
}

// now sends the time, unless one waits to be received.
func now(to chan<- time.Time) {
	select {
	case to <- time.Now():
	default:
	}
}

// receive waits for a time.
func receive(ctx context.Context, from <-chan time.Time) (time.Time, error) {
	select {
	case at := <-from:
		return at, nil
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
}
