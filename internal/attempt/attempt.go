package attempt

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
)

// Kind says what a request is; each kind has its own memory of how long
// answers take.
type Kind int

const (
	Renewal Kind = iota // KeepAlive
	Proof               // the read that confirms a renewal
	Read                // any other read
	Write               // a Txn that may be carried out twice without harm
	kinds
)

// Sender sends the requests of one session.
type Sender struct {
	client *clientv3.Client
	policy backoff.Policy // Attempt is set
}

// New returns a Sender. policy.Attempt must be set.
func New(cli *clientv3.Client, policy backoff.Policy) *Sender {
	return &Sender{client: cli, policy: policy}
}

// Once calls op until one call is answered: first on the caller's goroutine,
// then, after pauses, again beside the calls that hang. The first answer wins.
//
// open reports that a call was sent whose outcome is not known: it may be
// carried out at any later time. It may be true beside a nil error, when an
// earlier call was overtaken by a later one.
//
// The context that op gets ends with ctx or as soon as another call has
// answered; it carries no deadline to the server, and requires a leader.
func Once[T any](ctx context.Context, s *Sender, k Kind, op func(ctx context.Context) (T, error)) (v T, open bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.policy.Attempt)
	defer cancel()
	v, err = op(withoutDeadline{ctx})
	return v, backoff.Pending(err), err
}

// Ask is Once, repeated with the session's pauses while its error says that
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
