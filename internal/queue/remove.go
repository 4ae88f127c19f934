package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/leftovers"
	"github.com/holdfast-go/holdfast/internal/requests"
)

// errMustHandOff: a goroutine waits in the line, or the entry is gone.
var errMustHandOff = errors.New("the entry is to be handed off")

// RemoveNow removes the entries of some grants by one Txn, on the caller's goroutine. The Txn compares each of them,
// and the entry of beside, which stays; beside may be nil. After an error the caller must hand off each. ErrEntryGone:
// one of several entries was deleted.
func RemoveNow(ctx context.Context, grants []*Grant, beside *Grant) error {
	// HandOff could do all of this. But it must not end with ctx, so it needs a goroutine of its own, and to start one
	// and be woken by it costs a free lock some ten microseconds.
	first := grants[0]
	ctx, cancel := lease.ForRequest(ctx, first.Lease, 0)
	defer cancel()
	t := requests.Txn{If: make([]clientv3.Cmp, 0, len(grants)+1), Then: make([]clientv3.Op, 0, 2*len(grants))}
	for _, g := range grants {
		if !g.caller.isLast() {
			return errMustHandOff
		}
		t.If = append(t.If, g.Holding())
		t.Then = g.deletions(t.Then)
	}
	switch {
	case beside != nil:
		t.If = append(t.If, beside.Holding())
		fallthrough
	case len(grants) > 1:
		t.Else = []clientv3.Op{Meta(first.Key), Meta(cmp.Or(first.Claim, first.Key))}
	default:
		t.About = first.Queue.At.Entries
	}
	r, err := first.Commit(ctx, t)
	if r.Succeeded {
		for _, g := range grants {
			g.finish()
			g.caller.next()
		}
		return nil
	}
	unknown := first.Queue.ReportUnknown("remove", err) || r.Unanswered
	for _, g := range grants {
		g.removing = unknown
	}
	switch {
	case err != nil:
		return err
	case t.Else == nil:
		return errMustHandOff // HandOff finds out why
	case r.Unanswered, first.Queue.host.Sender.RepeatsUnnoticed() && !first.Is(cmp.Or(r.First(0), r.First(1))):
		return holdfast.ErrOutcomeUnknown // a copy of ours may have done it: nothing of the first stands
	default:
		return ErrEntryGone
	}
}

// tryRemove removes the entry and its claim, at any time: whatever stands ahead, those behind still see it. nil: the
// entry existed, or may have existed, and is gone. ErrEntryGone: another client had deleted it; then the claim is gone
// now. ErrRepeated: both are gone, perhaps by this session.
func (e *entry) tryRemove(ctx context.Context) error {
	r, err := e.Queue.shared.commits.Commit(ctx, requests.Txn{
		About: e.Queue.At.Entries, If: []clientv3.Cmp{e.Holding()}, Then: e.deletions(make([]clientv3.Op, 0, 2)),
	})
	e.removing = e.Queue.ReportUnknown("remove", err) || r.Unanswered || e.removing
	if err != nil || r.Succeeded {
		return err
	}
	stood, err := e.removeClaim(ctx)
	switch {
	case err != nil:
		return err
	case stood: // not by us: our removals take both
		return ErrEntryGone
	case e.removing: // by an unanswered copy of ours
		return nil
	case e.Queue.host.Sender.RepeatsUnnoticed():
		return ErrRepeated
	default:
		return ErrEntryGone
	}
}

// removeClaim removes the claim after another client has deleted or moved the entry. It reports whether the claim
// stood.
func (e *entry) removeClaim(ctx context.Context) (stood bool, err error) {
	if e.Claim == "" {
		return false, nil
	}
	// The revision is compared, because the key may have the claim of a later entry.
	r, err := e.Commit(ctx, requests.Txn{
		If: []clientv3.Cmp{createdAt(e.Claim, e.Created)}, Then: []clientv3.Op{clientv3.OpDelete(e.Claim)},
	})
	return r.Succeeded, err
}

// deletions adds what deletes the entry and its claim.
func (e *entry) deletions(to []clientv3.Op) []clientv3.Op {
	to = append(to, clientv3.OpDelete(e.Key))
	if e.Claim != "" {
		to = append(to, clientv3.OpDelete(e.Claim))
	}
	return to
}

// Remove removes the entry, retrying while that can help, and finishes the attempt. It returns what tryRemove does, or
// the error of the last try, joined with ErrOutcomeUnknown if a try was not answered. It runs on the lease's context,
// so no caller interrupts it.
func (e *entry) Remove() error {
	if e.stage < created { // its create revision is unknown: this is left to the sweeper
		e.finish()
		return nil
	}
	ctx := e.Lease.Context()
	err := e.Retry(ctx, e.tryRemove)
	unknown := e.removing
	switch {
	case errors.Is(err, ErrEntryGone), errors.Is(err, ErrRepeated):
		e.id = "" // another client may have put something else at the key
		e.finish()
		return err
	case err == nil:
		e.finish()
		return nil
	case e.Lease.Lost() != nil:
		e.finish()
	case etcderr.Classify(err) == etcderr.LeaseGone:
		e.Queue.host.LeaseGone(ctx, e.Lease, err)
		e.finish()
		return err
	default: // the sweeper tries again: a withdrawn permission may be granted again
		e.refused = true
		e.Queue.host.Telemetry.Sweeping(e.Queue.At.Kind)
		e.finish()
	}
	if unknown && !errors.Is(err, holdfast.ErrOutcomeUnknown) {
		return fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
	}
	return err
}

// finish ends what the attempt has to do with the entry. If a copy of its put was not answered, or the entry may stand,
// the sweeper takes over.
func (e *entry) finish() {
	before := e.stage
	e.reach(ended)
	shared := e.Queue.shared
	switch {
	case before == ended:
	case e.Lease.Lost() != nil: // then the entry ends with it
		// If etcd may still have the lease, the entry stays registered until the session has revoked it: MinHold may have
		// to move the entry.
		if cause := e.Lease.Lost().Cause; cause == holdfast.CauseRevoked || cause == holdfast.CauseClusterChanged {
			shared.keys.Unregister(e.home)
		}
	// The gate may have moved since. The copy may all the same have been carried out between the removal and this move.
	case before == sent || e.of.unansweredAt != 0 || e.refused:
		shared.sweeper.Add(e.suspect())
	case e.taken.moved: // the entry stands at its key
		shared.keys.Unregister(e.home)
	default:
		shared.keys.Recycle(e.home, e.id)
	}
}

// HandOff removes the entry, and makes the next goroutine in the line the head. If a goroutine waits, one Txn removes
// the entry and puts the next one, at the back of the queue. HandOff returns ErrEntryGone, or the error of the last
// try, joined with holdfast.ErrOutcomeUnknown if etcd left a try unanswered.
//
// It runs on the lease's context, until etcd has answered or the lease is lost, so neither caller interrupts it by
// giving up.
func (e *entry) HandOff() error {
	next := e.caller.takeFirst()
	if next == nil {
		err := e.Remove()
		e.caller.next() // another may have joined since
		return err
	}
	successor, err := e.replace(next)
	next.attempt = successor
	switch {
	case next.passTurn():
	case successor == nil: // its caller was canceled since
		next.next()
	default: // and its entry stands
		_ = successor.entries[0].HandOff()
	}
	return err
}

// replace removes the entry and puts one for c in one Txn. It returns no attempt if c must queue by itself. The error
// is what Remove says of the entry.
func (e *entry) replace(c *caller) (*attempt, error) {
	if e.stage < created {
		return nil, e.Remove()
	}
	next := newAttempt([]*caller{c}, e.Lease)
	successor := next.entries[0]
	next.after = e
	err := next.put(e.Lease.Context())
	if err != nil {
		err = next.putAgain(e.Lease.Context(), err)
	}
	if successor.stage >= created { // so the same Txn has removed e
		e.finish()
		if err == nil {
			return next, nil
		}
		_ = successor.Remove() // its token cannot be used; what stays open is the sweeper's
		return nil, nil
	}
	successor.finish()
	maybe := next.unansweredAt != 0 // an unanswered copy of the put may have removed e
	err = e.Remove()
	switch {
	case !maybe:
		return nil, err
	case err == nil, errors.Is(err, ErrEntryGone), errors.Is(err, ErrRepeated):
		return nil, nil
	default:
		return nil, fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
	}
}

// LeaveLine makes the next goroutine in the line the head. It queues behind the entry, which stands.
func (e *entry) LeaveLine() { e.caller.next() }

// Left ends a grant after LeaveLine, by what has come of its entry. nil: the entry has a lease of its own, so it stays.
// Left reports false if the entry may still stand, on a lease that lives: then Remove must follow.
func (e *entry) Left(err error) bool {
	if err != nil && !errors.Is(err, ErrEntryGone) && e.Lease.Lost() == nil {
		return false
	}
	e.taken.moved = err == nil
	e.finish()
	return true
}

// InFlight reports whether the entry is about to be put: see leftovers.KeyUser.
func (e *entry) InFlight() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stage < created
}

// suspect returns the entry for the sweeper, with each key where it may stand.
func (e *entry) suspect() *leftovers.Suspect {
	at, keys := e.Queue.At, []string{e.home}
	if claim := e.Queue.claimKey(e.home); claim != "" {
		keys = append(keys, claim)
	}
	if at.Kind == holdfast.KindSemaphore {
		turn := at.TurnKey(e.home)
		keys = append(keys, turn, at.ClaimKey(turn))
	}
	s := &leftovers.Suspect{
		Key: e.home, Keys: keys, Lease: e.Lease, UnansweredAt: e.of.unansweredAt, Attached: e.of.attaches,
	}
	if e.taken.moved {
		s.Kept = e.Created
	}
	return s
}
