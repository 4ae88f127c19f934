package election

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/stale"
)

// hook is an alias so that the field of Term is not exported.
type hook = stale.Hook

// Term is one leadership: from the campaign that won it until Resign, Yield or
// loss, and never again after. All methods may be called from any goroutine.
//
// A Term is a fencing.Holder: hand it to what checks tokens.
type Term struct {
	hook     // ends the hold when a fenced write is refused
	election *Election
	hold     *queue.Hold

	mu    sync.Mutex // protects what follows
	value string
	since int64 // etcd's revision at which value was put
}

var (
	_ fencing.Holder = (*Term)(nil)
)

// begin makes a term of a hold.
func (e *Election) begin(hold *queue.Hold, value string) *Term {
	t := &Term{hook: stale.NewHook(hold), election: e, hold: hold, value: value}
	rosterOf(e).add(t)
	return t
}

// Name is the name of the election, or its prefix, as it was given to New or
// NewAt: what the token is to be sent with.
func (t *Term) Name() string { return t.election.Name() }

// Token is the fencing token: larger than that of every earlier leader of this
// election. It stays the same through Proclaim. Send it, with the election's
// name, to whatever can compare it.
func (t *Term) Token() fencing.Token { return t.hold.Token() }

// AcquiredRevision is the etcd revision at which the term was seen to be held;
// at least the token's revision. It is for fleets that mix with clients which
// fence on the header revision; otherwise use Token.
func (t *Term) AcquiredRevision() int64 { return t.hold.AcquiredRevision() }

// Lease is the lease the term depends on.
func (t *Term) Lease() clientv3.LeaseID { return t.hold.Lease() }

// Key is the key of the term's entry in etcd.
func (t *Term) Key() string { return t.hold.Key() }

// Client is the session's etcd client.
func (t *Term) Client() *clientv3.Client { return t.hold.Client() }

// IsOwner is a comparison for a Txn of your own: true while this term's entry
// stands. fencing.NewFencedWriter does it for you.
func (t *Term) IsOwner() clientv3.Cmp { return t.hold.IsOwner() }

// Value is what the term was campaigned with or has last proclaimed.
func (t *Term) Value() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.value
}

// Check says, judged now and without an RPC, whether the term is held: nil;
// holdfast.ErrSuspended (perhaps: stop side effects for now); a
// *holdfast.LostError (no, for good); holdfast.ErrReleased. It reads the clock,
// so it is right even before any timer has fired after a pause. Between a
// Check and what follows it time passes: only a fence closes that gap.
func (t *Term) Check() error { return t.hold.Check() }

// Done is closed when the term has ended. Check says how.
func (t *Term) Done() <-chan struct{} { return t.hold.Done() }

// Context returns a child of ctx that is done when the term has ended, with a
// *holdfast.LostError or holdfast.ErrReleased as its context.Cause, and that
// carries the term for fencing.FromContext. With Options.CancelOnSuspended it
// is done on suspension too. If the term has ended before, the context is done
// when Context returns. Call cancel when done with it.
func (t *Term) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return t.hold.Context(fencing.NewContext(ctx, t), t.election.opts.CancelOnSuspended)
}

// Proclaim changes the value that observers see, without another election; the
// token stays. At most MaxValue bytes. It may be called from several
// goroutines; each observer then sees the values in the order of etcd's history.
//
//   - nil: the value stands, and no earlier Proclaim that went unanswered can
//     undo it later;
//   - *holdfast.ArgumentError: nothing was sent;
//   - a *holdfast.LostError or holdfast.ErrReleased: the term has ended; if
//     etcd's answer is how that became known, it is lost with
//     holdfast.CauseEntryDeleted or holdfast.CauseRevoked from now on;
//   - an error that Is holdfast.ErrOutcomeUnknown: not answered before ctx
//     ended. It may take effect until a later Proclaim succeeds or the term
//     ends;
//   - other errors, ctx's among them: it did not take effect.
//
// While the session is suspended Proclaim tries all the same: etcd compares.
func (t *Term) Proclaim(ctx context.Context, value string) error {
	if err := checkValue(value); err != nil {
		return err
	}
	since, err := t.hold.Update(ctx, value)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if since > t.since { // or another Proclaim came after this one
		t.value, t.since = value, since
	}
	return nil
}

// Resign ends the term and removes its entry. Once called, the term is not
// held, whatever it returns:
//
//   - nil: the entry is gone;
//   - a *holdfast.LostError: the term had been lost before. Nothing was sent: by
//     an ex-leader Resign is a no-op, whoever leads now;
//   - an error that Is holdfast.ErrOutcomeUnknown: etcd did not answer before
//     ctx ended; the session goes on removing the entry, and if it cannot, the
//     entry goes with the lease.
//
// Resign works with a dead ctx too: it then waits for at most the session's
// CloseTimeout. Calling it again, from anywhere, is harmless: it waits for the
// same removal and gives the same answer, or a later one.
func (t *Term) Resign(ctx context.Context) error { return t.hold.Release(ctx) }

// Yield steps down and queues again at the back, in one Txn: no observer sees
// the candidate absent, and nobody who was queued waits for it. It returns the
// next term when its turn has come. Candidates of the same session that were
// waiting have their turns first. The value is the last one proclaimed.
//
// Any error is a *CampaignError. If it Is holdfast.ErrReentrant (ctx comes from
// this term, and would end with it), Is ErrFunctionRuns (see below) or holds a
// *holdfast.ArgumentError, nothing has happened and the term goes on; so it does
// if ctx had ended before the call. If it Is holdfast.ErrLost or holdfast.ErrReleased, the term had ended
// before. Otherwise the term is released and no candidacy is left: see
// Campaign.
//
// A term of RunWhileLeader or Run cannot be yielded, whatever the context: it is
// their function's, which would not work in the next term. Return from the
// function instead; Run then queues again.
func (t *Term) Yield(ctx context.Context) (*Term, error) {
	start := time.Now()
	e := t.election
	value := t.Value()
	if err := e.admit(ctx, value); err != nil {
		return nil, e.failed(0, err)
	}
	if t.hold.Live() && rosterOf(e).scoped(t) {
		return nil, e.failed(0, ErrFunctionRuns)
	}
	hold, err := t.hold.Requeue(ctx, e.request(value))
	if err != nil {
		return nil, e.failed(time.Since(start), err)
	}
	return e.begin(hold, value), nil
}
