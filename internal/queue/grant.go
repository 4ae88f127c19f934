package queue

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/ahead"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/telemetry"
	"github.com/holdfast-go/holdfast/view"
)

// Grant is an entry that holds. Its owner ends it by exactly one of RemoveNow, RemoveTogether, HandOff, and LeaveLine
// followed by Left or Remove. One goroutine at a time calls what changes a Grant.
type Grant struct {
	Queue *Queue       // whose front the entry is
	Host  lease.Host   // the session
	Lease *lease.Lease // that the entry is bound to

	Key, Value string         // in etcd, as they were put
	Claim      string         // the key of the claim; empty of a permit
	Created    int64          // the create revision
	Modified   int64          // the mod revision when it was granted
	Token      holdfast.Token // for fencing

	AcquiredRevision int64     // of the store, at the latest read that verified an entry of the set
	Stood            time.Time // when the latest request was sent whose reply showed that the lease was not revoked

	Telemetry *telemetry.Acquisition // what measures the acquisition; nil for all grants of a set but the first

	entry *entry
}

// newGrants returns a grant for each entry of an attempt that holds.
func newGrants(a *attempt) []*Grant {
	grants := a.room.grants[:0]
	for i, e := range a.entries {
		e.reach(held)
		e.say(lease.Holds, lease.EntryStep{Read: a.revision})
		g := &a.room.grant
		if i > 0 {
			g = new(Grant)
		}
		*g = Grant{
			Queue: e.q, Host: e.q.host, Lease: a.lease,
			Key: e.key, Value: e.value, Claim: e.claim, Created: e.rev, Modified: e.modRevision(), Token: e.token,
			AcquiredRevision: a.revision, Stood: a.lookSent, Telemetry: e.ticket.request.telemetry,
			entry: e,
		}
		grants = append(grants, g)
	}
	return grants
}

// Is reports whether kv is the entry.
func (g *Grant) Is(kv *mvccpb.KeyValue) bool { return ahead.IsEntry(kv, g.Created) }

// Holding is true in a Txn while the entry exists. It compares the create revision, since a later entry may have the
// same key.
func (g *Grant) Holding() clientv3.Cmp { return g.entry.owned() }

// Commit sends a Txn about the entry, perhaps with others of the session in one request.
func (g *Grant) Commit(ctx context.Context, t requests.Txn) (requests.Reply, error) {
	return g.entry.q.shared.commits.Commit(ctx, t)
}

// Retry calls op until it succeeds or fails for good, with the session's pauses, until ctx ends or the lease is lost.
// Each request of op has its own timeout.
func (g *Grant) Retry(ctx context.Context, op func(ctx context.Context) error) error {
	return g.entry.retry(ctx, op)
}

// Shown is what callers of a session see of an entry that another goroutine of it holds; false once that has ended.
type Shown interface{ Shown() (view.Entry, bool) }

// Show records what callers of this session see of the holder while they wait behind the entry.
func (g *Grant) Show(shown Shown) {
	s, t := g.entry.q.shared, g.entry.ticket
	s.mu.Lock()
	defer s.mu.Unlock()
	t.shown = shown
}

// RemoveNow removes the entry with one request, on the caller's goroutine, and reports whether that succeeded. It does
// nothing if another goroutine waits in the line: then the caller must hand the entry off. A hand-off must not end with
// ctx.
//
// This is the usual release. HandOff could do it as well, but starting a goroutine for that and being woken by it costs
// a free lock some ten microseconds.
func (g *Grant) RemoveNow(ctx context.Context) bool {
	if !g.entry.ticket.IsLast() {
		return false
	}
	ctx, cancel := lease.ForRequest(ctx, g.entry.of.lease, 0)
	defer cancel()
	if g.entry.tryRemove(ctx) != nil {
		return false
	}
	g.entry.finish()
	g.entry.ticket.Next()
	return true
}

// RemoveTogether removes the entries of some grants by one Txn. The Txn compares that they stand, and that the entry of
// beside stands, which stays; beside may be nil. After an error the caller must hand off each. ErrEntryGone: one of the
// entries was deleted.
func RemoveTogether(ctx context.Context, grants []*Grant, beside *Grant) error {
	first := grants[0].entry
	ctx, cancel := lease.ForRequest(ctx, first.of.lease, 0)
	defer cancel()
	var t requests.Txn
	for _, g := range grants {
		t.If = append(t.If, g.Holding())
		t.Then = g.entry.deletions(t.Then)
	}
	if beside != nil {
		t.If = append(t.If, beside.Holding())
	}
	t.Else = first.stands()
	r, err := first.q.shared.commits.Commit(ctx, t)
	if r.Succeeded {
		for _, g := range grants {
			g.entry.finish()
			g.entry.ticket.Next()
		}
		return nil
	}
	unknown := first.q.ReportUnknown("remove", err) || r.Unanswered
	for _, g := range grants {
		g.entry.removing = unknown
	}
	switch {
	case err != nil:
		return err
	case r.Unanswered, first.q.host.Sender().RepeatsUnnoticed() && !first.stood(r): // a copy of ours may have done it
		return holdfast.ErrOutcomeUnknown
	default:
		return ErrEntryGone
	}
}

// HandOff removes the entry, and makes the next goroutine in the line the head. If a goroutine waits, the same Txn puts
// its entry. HandOff runs until etcd has answered or the lease is lost. It returns ErrEntryGone, or the error of the
// last try, joined with holdfast.ErrOutcomeUnknown if etcd left a try unanswered.
func (g *Grant) HandOff() error { return handOff(g.entry) }

// LeaveLine makes the next goroutine in the line the head, while the entry stands. It queues behind that.
func (g *Grant) LeaveLine() { g.entry.ticket.Next() }

// Remove removes the entry of a grant that has left its line. It returns what HandOff does.
func (g *Grant) Remove() error { return g.entry.remove(g.entry.of.lease.Context()) }

// Left ends a grant that has left its line, by what has come of its entry. nil: the entry has a lease of its own, so
// it stays. After an error it reports false if the entry is still to be removed: it was not deleted by another client,
// and the lease lives.
func (g *Grant) Left(err error) bool {
	switch e := g.entry; {
	case err == nil:
		e.taken.moved = true
		e.finish()
	case errors.Is(err, ErrEntryGone):
		e.finish()
	case e.of.lease.Lost() != nil:
		e.abandon()
	default:
		return false
	}
	return true
}

// CallerReturned records that the caller of a release returns although etcd has not confirmed it.
func (g *Grant) CallerReturned() { g.entry.ticket.Returned() }

// TakeFor makes the name stay taken for d from now on: until then the session deletes the entry only if its owner does.
// TakeFor(0) undoes that.
func (g *Grant) TakeFor(d time.Duration) {
	until := g.entry.q.host.Clock()() + d
	if d == 0 {
		until = 0
	}
	e := g.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	e.taken.until, e.taken.since = until, time.Now()
}

// TakenFor is the rest of what TakeFor was called with.
func (g *Grant) TakenFor() time.Duration { return g.entry.takenFor() }

// TakenSince is when TakeFor was called.
func (g *Grant) TakenSince() time.Time {
	g.entry.mu.Lock()
	defer g.entry.mu.Unlock()
	return g.entry.taken.since
}

// Taken returns grants for the entries of a lost lease that are to stay: see TakeFor. They are for Forget, and for
// reading.
func Taken(host lease.Host, l *lease.Lease) (taken []*Grant) {
	for _, e := range sharedBy(host).entriesOf(l) {
		if e.takenFor() > 0 {
			taken = append(taken, &Grant{
				Queue: e.q, Lease: l, Key: e.key, Value: e.value, Claim: e.claim, Created: e.rev, entry: e,
			})
		}
	}
	return taken
}

// Forget has the session not account for the entry any more: it was moved to another lease, or is gone.
func (g *Grant) Forget() { g.entry.q.shared.keys.Unregister(g.Key) }
