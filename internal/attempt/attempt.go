package attempt

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
)

// Sender sends the requests of one session. It is safe for concurrent use.
type Sender struct {
	client *clientv3.Client
	policy backoff.Policy // Attempt is set
	paces  [kinds]pace

	mu     sync.Mutex    // protects what follows
	beside int           // sends on goroutines of their own
	idle   chan struct{} // closed when beside is 0 again; nil while it is
}

// New returns a Sender. policy.Attempt must be set.
func New(cli *clientv3.Client, policy backoff.Policy) *Sender {
	s := &Sender{client: cli, policy: policy}
	s.paces[Read].set(readBase, maxRepeat)
	s.paces[Write].set(writeBase, policy.Attempt)
	s.SetRenewal(renewalBase, maxRepeat)
	return s
}

// SetRenewal sets the least pause before a renewal or its proof is sent again,
// and the most.
func (s *Sender) SetRenewal(base, most time.Duration) {
	base, most = min(base, renewalBase), min(most, maxRepeat)
	s.paces[Renewal].set(base, most)
	s.paces[Proof].set(base, most)
}

// Wait waits for the sends that are still under way. Those of calls that have
// returned are cancelled, so it is short.
func (s *Sender) Wait() {
	s.mu.Lock()
	idle := s.idle
	s.mu.Unlock()
	if idle != nil {
		<-idle
	}
}

// count adds to the number of sends on goroutines of their own.
func (s *Sender) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.beside == 0 {
		s.idle = make(chan struct{})
	}
	if s.beside += n; s.beside == 0 {
		close(s.idle)
		s.idle = nil
	}
}

// Once calls op until one call is answered: first on the caller's goroutine,
// then, after pauses, again beside the calls that hang, as many at once as there
// are endpoints. The first answer wins, and the other calls are
// cancelled. An answer is a nil error, or one by which etcd has decided the
// request for good: a refused permission, a lease that is gone, a malformed
// request. Of other errors Once returns one when no call is under way any more:
// it does not pause, so a loop around it has to; see [Ask].
//
// Once ends with ctx, and after three times the policy's Attempt with an error
// that Is context.DeadlineExceeded. Each call for a write is given up after the
// policy's Attempt.
//
// op is called by several goroutines at the same time and must return what it
// finds by value only; a call may outlive Once by the moment it takes to see
// that its context has ended. That context ends with ctx or when another call
// is answered; it carries no deadline to the server, and requires a leader.
//
// open reports that a call was made whose outcome is not known: it may have been
// carried out, or may be at any later time. It may be true beside a nil error,
// when another call was answered first, or in the same moment. The class of err
// says nothing of the other calls.
func Once[T any](ctx context.Context, s *Sender, k Kind, op func(ctx context.Context) (T, error)) (v T, open bool, err error) {
	if err := backoff.ContextErr(ctx); err != nil {
		return v, false, err
	}
	r, first := newRace(ctx, s, k, op)
	defer r.end()
	r.send(first)
	return r.result()
}

// Ask is Once, repeated with the policy's pauses while its error says that
// repeating can help. op must be a question: it changes nothing.
func Ask[T any](ctx context.Context, s *Sender, k Kind, op func(ctx context.Context) (T, error)) (T, error) {
	var v T
	policy := s.policy
	policy.Attempt = 0 // Once bounds it
	err := backoff.Retry(ctx, policy, func(ctx context.Context) (err error) {
		v, _, err = Once(ctx, s, k, op)
		return backoff.WithConnection(s.client.ActiveConnection(), err)
	})
	return v, err
}
