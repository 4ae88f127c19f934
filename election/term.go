package election

import (
	"context"
	"log/slog"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/requests"
)

// hook is an alias: so Term's field is not exported.
type hook = requests.Hook

// Term is one leadership, until it is resigned or lost, and never again after. It may be used by any number of
// goroutines. It is a fencing.Holder.
type Term struct {
	hook     // leads fenced writers to the hold
	election *Election
	hold     *hold.Hold
	turn     *turn // of the call whose function the term is for; nil: Campaign's
}

var _ fencing.Holder = (*Term)(nil)

// Name is the election's name or prefix. Send it with the token.
func (t *Term) Name() string { return t.election.Name() }

// String names the election, with the term's token and lease.
func (t *Term) String() string { return t.hold.String() }

// Token is the fencing token, larger than the token of every earlier term. Send it, with Name, to what can compare it.
func (t *Term) Token() holdfast.Token { return t.hold.Token() }

// AcquiredRevision is the etcd revision of the read that showed the term, as that of a locker.Lock.
func (t *Term) AcquiredRevision() int64 { return t.hold.AcquiredRevision() }

// Lease is the lease of the term's entry.
func (t *Term) Lease() clientv3.LeaseID { return t.hold.Lease() }

// Key is the key of the term's entry in etcd.
func (t *Term) Key() string { return t.hold.Key() }

// Client is the session's etcd client.
func (t *Term) Client() *clientv3.Client { return t.hold.Client() }

// Holding is a comparison for your own Txn: the term's entry exists.
func (t *Term) Holding() []clientv3.Cmp { return t.hold.Holding() }

// Value is the value with which the term began: Options.Value. Proclaim does not change it.
func (t *Term) Value() string { return t.election.opts.Value }

// Check reports whether the term goes on, without an RPC: see [fencing.Source].
func (t *Term) Check() error { return t.hold.Check() }

// Done is closed when the term has ended. Check says how.
func (t *Term) Done() <-chan struct{} { return t.hold.Done() }

// WithContext returns a child of ctx. It carries the term for fencing.FromContext, and is canceled when the term ends,
// or, with Options.CancelOnSuspended, is suspended. context.Cause is Check's error then. Call cancel when you're done
// with it.
func (t *Term) WithContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return t.hold.Context(fencing.NewContext(ctx, t), t.election.opts.CancelOnSuspended)
}

// Proclaim changes the value for observers, to at most MaxValue bytes. After nil no earlier Proclaim can undo it. If
// the error Is holdfast.ErrLost or holdfast.ErrReleased, the term has ended; if it Is holdfast.ErrOutcomeUnknown, ctx
// ended before etcd answered: the value may take effect until a later Proclaim succeeds or the term ends. After any
// other error it did not take effect.
func (t *Term) Proclaim(ctx context.Context, value string) error {
	if err := validateValue("value", value); err != nil {
		return err
	}
	return t.hold.Update(ctx, value)
}

// Resign ends the term, whatever is returned, and removes its entry: nil; holdfast.ErrLost, if the term was lost
// before; holdfast.ErrOutcomeUnknown, if ctx ended before etcd answered; or etcd's error, if it refuses the removal.
// Then the session keeps removing the entry, or it expires with the lease. If ctx has ended already, Resign waits for
// at most session.Options.CloseTimeout. Further calls return the same, or a later outcome of the same removal.
func (t *Term) Resign(ctx context.Context) error { return t.hold.Release(ctx) }

func (t *Term) log() *slog.Logger { return t.election.log().With("token", t.Token()) }
