package requests

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// Sender sends the requests of one session or reader. It is safe for concurrent use.
type Sender struct {
	client  *clientv3.Client
	kv      clientv3.KV
	policy  backoff.Policy
	attempt time.Duration       // bounds each send of a write; 0: nothing but its context does
	latest  [kinds]atomic.Int64 // how long the latest reply took; an election must not slow down what comes after it
	callers budget              // of Read and Write
	own     budget
}

// NewSender returns a Sender. policy.Attempt bounds each send of a write if the client's KV was replaced.
func NewSender(cli *clientv3.Client, policy backoff.Policy) *Sender {
	kv, own := kvOf(cli)
	s := &Sender{client: cli, kv: kv, policy: policy}
	s.callers = budget{rounds: callerRounds, price: callerPrice, endpoints: s.endpoints, pause: firstByTime}
	s.own = budget{rounds: ownRounds, price: ownPrice, endpoints: s.endpoints}
	if !own {
		s.attempt = policy.Attempt
	}
	s.policy.Attempt = 0 // a read takes as long as its context
	return s
}

// Txn begins a Txn that only the Sender repeats, unless the client's KV was replaced.
func (s *Sender) Txn(ctx context.Context) clientv3.Txn { return s.kv.Txn(ctx) }

// RepeatsUnnoticed reports that etcd's client may have sent a Txn twice, because the client's KV was replaced: then a
// refusal may be the reply to the second copy, and the first may have been carried out.
func (s *Sender) RepeatsUnnoticed() bool { return s.attempt != 0 }

// Get asks by a linearizable read, as [Ask] does.
func (s *Sender) Get(ctx context.Context, op clientv3.Op) (*clientv3.GetResponse, error) {
	return Ask(ctx, s, Read, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return s.Read(ctx, op)
	})
}

// Read sends one linearizable read once, unless the client's KV was replaced.
func (s *Sender) Read(ctx context.Context, op clientv3.Op) (*clientv3.GetResponse, error) {
	resp, err := s.kv.Do(ctx, op)
	return resp.Get(), err
}

func (s *Sender) budgetOf(k Kind) *budget {
	if k.isOwn() {
		return &s.own
	}
	return &s.callers
}

// endpoints is how many copies a round has.
func (s *Sender) endpoints() int {
	return max(1, len(s.client.Endpoints())) // a client without endpoints still has its connection
}

// Once calls op until one call is answered: first on the caller's goroutine, then, after each pause, beside it, once
// for each endpoint if its budget allows that; never for [Unhurried]. The first reply wins, and the other calls are
// canceled. A reply is a nil error, or an error by which etcd has decided the request for good: refused permission, a
// lease that is gone, a malformed request. Once returns another error when no call is left in flight. It does not pause
// then, so a loop around it has to; see [Ask].
//
// Once ends with ctx, and its calls before it; what is unhurried also ends after 5 s. A slow disk may take seconds for
// each write, so nothing shorter cuts one off, unless the client's KV was replaced: see [New].
//
// op runs on several goroutines at once, and must return its result by value only, soon after the end of its context.
// That context requires a leader, and sends no deadline to the server.
//
// open reports that the outcome of some call is unknown: its request may have been carried out, or may be carried
// out at any later time. open may be true although err is nil, when another call was answered first. The class of
// err says nothing about the other calls.
func Once[T any](
	ctx context.Context, s *Sender, k Kind, op func(ctx context.Context) (T, error),
) (v T, open bool, err error) {
	return OnceWithin(ctx, s, k, nil, op)
}

// OnceWithin is Once for a request that is of use only while time is left, such as a renewal. A nil left is no limit.
func OnceWithin[T any](
	ctx context.Context, s *Sender, k Kind, left func() time.Duration, op func(ctx context.Context) (T, error),
) (v T, open bool, err error) {
	if err := retry.ContextErr(ctx); err != nil {
		return v, false, err
	}
	if k == Unhurried {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, longest) // its member may hang
		defer cancel()
	}
	r := newRace(ctx, s, k, s.pauses(k, left), op)
	defer r.end()
	defer r.cancel() // before r.end, if op panics
	r.send(false)
	r.end()
	o := r.outcome
	if o.won {
		return o.v, o.pending, o.err
	}
	switch ended := retry.ContextErr(ctx); {
	case ended == nil:
		return o.v, o.pending, o.err
	case errors.Is(o.err, context.Canceled) || errors.Is(o.err, context.DeadlineExceeded):
		return o.v, o.pending, ended
	default:
		return o.v, o.pending, fmt.Errorf("%w; last error: %w", ended, o.err)
	}
}

// Ask is Once, repeated with the policy's pauses while its error is retryable. op must be a read.
func Ask[T any](ctx context.Context, s *Sender, k Kind, op func(ctx context.Context) (T, error)) (T, error) {
	var v T
	err := backoff.Retry(ctx, s.policy, func(ctx context.Context) (err error) {
		if v, _, err = OnceWithin(ctx, s, k, nil, op); err != nil {
			err = retry.WithConnection(s.client.ActiveConnection(), err)
		}
		return err
	})
	return v, err
}
