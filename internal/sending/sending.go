package sending

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/judge"
)

// Sender sends the requests of one session or reader. It is safe for concurrent use.
type Sender struct {
	client *clientv3.Client
	kv     clientv3.KV
	policy backoff.Policy // Attempt is set
	paces  [kinds]pace
	debt   debt

	mu     sync.Mutex    // protects what follows
	beside int           // sends on goroutines of their own
	idle   chan struct{} // closed when beside is 0 again; nil before the first
}

// New returns a Sender. policy.Attempt must be set.
func New(cli *clientv3.Client, policy backoff.Policy) *Sender {
	s := &Sender{client: cli, kv: kvOf(cli), policy: policy}
	s.paces[Read].set(readBase, s.longest())
	s.paces[Write].set(writeBase, s.longest())
	s.paces[Grant].set(writeBase, s.longest())
	s.paces[Unhurried].set(s.bound(), s.bound())
	s.SetRenewal(renewalBase, s.longest())
	return s
}

// Txn begins a Txn that only the Sender repeats, unless the client's KV was replaced.
func (s *Sender) Txn(ctx context.Context) clientv3.Txn { return s.kv.Txn(ctx) }

// Get sends one linearizable read, as [Ask] does.
func (s *Sender) Get(ctx context.Context, op clientv3.Op) (*clientv3.GetResponse, error) {
	return Ask(ctx, s, Read, func(ctx context.Context) (*clientv3.GetResponse, error) {
		resp, err := s.client.Do(ctx, op)
		return resp.Get(), err
	})
}

// bound is how long a call lasts at most.
func (s *Sender) bound() time.Duration { return maxAttempts * s.policy.Attempt }

// longest is the longest pause: the next copy of a write is sent before the one before is given up.
func (s *Sender) longest() time.Duration { return s.policy.Attempt * 15 / 16 }

// SetRenewal sets the shortest and the longest pause before a renewal or its proof is sent again.
func (s *Sender) SetRenewal(base, most time.Duration) {
	base, most = min(base, renewalBase), min(most, s.longest())
	s.paces[Renewal].set(base, most)
	s.paces[Proof].set(base, most)
}

// Wait waits for the sends in flight. Those of calls that have returned are canceled, so it is short.
func (s *Sender) Wait() {
	s.mu.Lock()
	idle := s.idle
	s.mu.Unlock()
	if idle != nil {
		<-idle
	}
}

// count adds to the number of sends on separate goroutines.
func (s *Sender) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.beside == 0 {
		s.idle = make(chan struct{})
	}
	if s.beside += n; s.beside == 0 {
		close(s.idle)
	}
}

// Once calls op until one call is answered: first on the caller's goroutine, then, after each pause, beside it: once
// for each endpoint, or only once while few of the Sender's requests are answered, or etcd is slow; never for
// [Unhurried]. The first reply wins, and the other calls are canceled. A reply is a nil error, or an error by which
// etcd has decided the request for good: refused permission, a lease that is gone, a malformed request. Once returns
// another error when no call is left in flight. It does not pause then, so a loop around it has to; see [Ask].
//
// Once ends with ctx, and after three times the policy's Attempt with an error that Is context.DeadlineExceeded.
// Each call of a write, and of what is unhurried, is canceled after the policy's Attempt.
//
// op runs on several goroutines at once, and must return its result by value only; a call may outlive Once for the
// moment it takes to notice that its context is canceled. That context requires a leader, and sends no deadline to
// the server.
//
// open reports that the outcome of some call is unknown: its request may have been carried out, or may be carried
// out at any later time. open may be true although err is nil, when another call was answered first. The class of
// err says nothing about the other calls.
func Once[T any](
	ctx context.Context, s *Sender, k Kind, op func(ctx context.Context) (T, error),
) (v T, open bool, err error) {
	if err := backoff.ContextErr(ctx); err != nil {
		return v, false, err
	}
	s.debt.began()
	defer s.debt.ended()
	r, first := newRace(ctx, s, k, op)
	defer r.end()
	r.send(first)
	return r.result()
}

// Ask is Once, repeated with the policy's pauses while its error is retryable. op must be a read.
func Ask[T any](ctx context.Context, s *Sender, k Kind, op func(ctx context.Context) (T, error)) (T, error) {
	var v T
	policy := s.policy
	policy.Attempt = 0 // Once has its own bound
	err := backoff.Retry(ctx, policy, func(ctx context.Context) (err error) {
		v, _, err = Once(ctx, s, k, op)
		return judge.WithConnection(s.client.ActiveConnection(), err)
	})
	return v, err
}
