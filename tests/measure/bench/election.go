package main

import (
	"context"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/session"
)

// elections measures how fast leadership moves to the next candidate, and what a query for the leader costs.
func elections() []subject {
	const queries = 1000
	return []subject{{
		name:  "election/resign",
		what:  "Resign to the next of 2 candidates",
		short: "Resign to the next leader",
		holdfast: func(e *env) (op, error) {
			sessions, err := e.holdfastSessions(2)
			var all []contender
			for _, s := range sessions {
				all = append(all, holdfastCandidate(s, e.name))
			}
			if err != nil {
				return nil, err
			}
			return takeTurns(e, all)
		},
		upstream: func(e *env) (op, error) {
			sessions, err := e.upstreamSessions(2)
			var all []contender
			for _, s := range sessions {
				all = append(all, upstreamCandidate(s, e.name))
			}
			if err != nil {
				return nil, err
			}
			return takeTurns(e, all)
		},
		floor: func(e *env) (op, error) { return takeTurnsWith(e, bareMutexes, 2) },
	}, {
		name:  "election/leader",
		what:  "Leader: who leads, by a linearizable read",
		short: "Leader, by a read",
		holdfast: func(e *env) (op, error) {
			el, err := holdfastLeader(e)
			return func(timer) error {
				_, err := el.Leader(e.ctx)
				return err
			}, err
		},
		upstream: func(e *env) (op, error) {
			sessions, err := e.upstreamSessions(1)
			if err != nil {
				return nil, err
			}
			el := concurrency.NewElection(sessions[0], e.name)
			return func(timer) error {
				_, err := el.Leader(e.ctx)
				return err
			}, el.Campaign(e.ctx, "value")
		},
		floor: get,
	}, {
		name: "election/current",
		what: "Observer.Current: who leads, from memory",
		each: queries,
		holdfast: func(e *env) (op, error) {
			el, err := holdfastLeader(e)
			if err != nil {
				return nil, err
			}
			o, err := el.Observer(e.ctx)
			return func(timer) error {
				for range queries {
					_ = o.Current()
				}
				return nil
			}, err
		},
	}}
}

func holdfastCandidate(s *session.Session, name string) contender {
	el := election.New(s, name).With(election.Options{Value: "value"})
	return func(ctx context.Context) (func(context.Context) error, error) {
		term, err := el.Campaign(ctx)
		if err != nil {
			return nil, err
		}
		return term.Resign, nil
	}
}

func upstreamCandidate(s *concurrency.Session, name string) contender {
	el := concurrency.NewElection(s, name)
	return func(ctx context.Context) (func(context.Context) error, error) {
		return el.Resign, el.Campaign(ctx, "value")
	}
}

// holdfastLeader returns an election with a leader.
func holdfastLeader(e *env) (*election.Election, error) {
	sessions, err := e.holdfastSessions(1)
	if err != nil {
		return nil, err
	}
	el := election.New(sessions[0], e.name).With(election.Options{Value: "value"})
	_, err = el.Campaign(e.ctx)
	return el, err
}
