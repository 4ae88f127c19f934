package election

import (
	"context"
	"log/slog"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/hold"

	"github.com/holdfast-go/holdfast/internal/requests"
)

// hook is an alias so that Term's field is not exported.
type hook = requests.Hook

// Term is one leadership, until it is resigned, yielded or lost, and never again after. It may be used by any number of
// goroutines. It is a fencing.Holder.
type Term struct {
	hook     // ends the hold when a fenced write is refused
	election *Election
	hold     *hold.Hold

	mu    sync.Mutex // protects what follows
	value string
	since int64 // etcd's revision at which value was put
}

var (
	_ fencing.Holder = (*Term)(nil)
)

func newTerm(e *Election, hold *hold.Hold, value string) *Term {
	t := &Term{hook: requests.NewHook(hold), election: e, hold: hold, value: value}
	termsOf(e).add(t)
	return t
}

// Name is the election's name or prefix. Send it with the token.
func (t *Term) Name() string { return t.election.Name() }

// String names the election, with the term's token and lease.
func (t *Term) String() string { return t.hold.String() }

// Token is the fencing token, larger than that of every earlier term. Send it, with Name, to what can compare it.
func (t *Term) Token() holdfast.Token { return t.hold.Token() }

// AcquiredRevision is the etcd revision at which the term was found to be held, at least the token's, for clients that
// fence on revisions. Otherwise use Token.
func (t *Term) AcquiredRevision() int64 { return t.hold.AcquiredRevision() }

// Lease is the lease of the term's entry.
func (t *Term) Lease() clientv3.LeaseID { return t.hold.Lease() }

// Key is the key of the term's entry in etcd.
func (t *Term) Key() string { return t.hold.Key() }

// Client is the session's etcd client.
func (t *Term) Client() *clientv3.Client { return t.hold.Client() }

// Owned is a comparison for your own Txn: the term's entry exists.
func (t *Term) Owned() []clientv3.Cmp { return t.hold.Owned() }

// Value is the value given to Campaign or last proclaimed.
func (t *Term) Value() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.value
}

// Check reports whether the term is held now, without an RPC: nil; holdfast.ErrSuspended (perhaps: stop side effects);
// a *holdfast.LostError; holdfast.ErrReleased. It is right even after a pause. Time passes between a Check and what
// follows it; only fencing closes that gap.
func (t *Term) Check() error { return t.hold.Check() }

// Done is closed when the term has ended. Check says how.
func (t *Term) Done() <-chan struct{} { return t.hold.Done() }

// WithContext returns a child of ctx that carries the term for fencing.FromContext and is canceled when the term ends,
// or, with Options.CancelOnSuspended, is suspended. context.Cause is Check's error then. Call cancel when done with it.
func (t *Term) WithContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return t.hold.Context(fencing.NewContext(ctx, t), t.election.opts.CancelOnSuspended)
}

// Proclaim changes the value that observers see, to at most MaxValue bytes. After nil no earlier Proclaim can undo it.
// An error that Is holdfast.ErrLost or holdfast.ErrReleased means that the term has ended; holdfast.ErrOutcomeUnknown
// that ctx ended before etcd answered: the value may take effect until a later Proclaim succeeds or the term ends.
// After any other error it did not take effect.
func (t *Term) Proclaim(ctx context.Context, value string) error {
	if err := validateValue(value); err != nil {
		return err
	}
	since, err := t.hold.Update(ctx, value)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if since > t.since { // or a later Proclaim has set it
		t.value, t.since = value, since
	}
	return nil
}

// RecordRun records in etcd that a recurring job of the leader has run, as locker.Lock.RecordRun does for a lock, with
// its errors. The key is NAMESPACE/election/NAME/@run.
func (t *Term) RecordRun(ctx context.Context, slot string, within time.Duration) error {
	return hold.RecordRun(ctx, t.election.queue, t, slot, within)
}

// Resign ends the term, whatever is returned, and removes its entry: nil; holdfast.ErrLost, if the term was lost
// before; or holdfast.ErrOutcomeUnknown, if ctx ended before etcd answered. Then the session keeps removing the entry,
// or it expires with the lease. If ctx has ended already, Resign waits for at most session.Options.CloseTimeout.
// Further calls return the same result.
func (t *Term) Resign(ctx context.Context) error { return t.hold.Release(ctx) }

// Yield resigns and queues again at the back in one Txn, with the last proclaimed value, and returns the next term when
// its turn comes.
//
// An error is a *CampaignError. The term goes on if the error Is ErrFunctionRuns or holdfast.ErrReentrant (ctx comes
// from this term), contains a *holdfast.ArgumentError, or if ctx had ended before the call. Otherwise the term has
// ended, and no candidate is left.
func (t *Term) Yield(ctx context.Context) (*Term, error) {
	start := time.Now()
	e := t.election
	value := t.Value()
	if err := e.validate(ctx, value); err != nil {
		return nil, e.failed(0, err)
	}
	if t.hold.Live() && termsOf(e).scoped(t) {
		return nil, e.failed(0, ErrFunctionRuns)
	}
	hold, err := t.hold.Requeue(ctx, e.request(value))
	if err != nil {
		if t.hold.Blocks() && !t.hold.Live() && !termsOf(e).scoped(t) {
			_ = t.Resign(ctx) // an administrator has ended the term, whose entry is left to this
		}
		return nil, e.failed(time.Since(start), err)
	}
	return newTerm(e, hold, value), nil
}

func (t *Term) log() *slog.Logger { return t.election.log().With("token", t.Token()) }
