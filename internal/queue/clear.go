package queue

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/ahead"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// lookAgain is the time between two looks during a delay. A holder that was told meanwhile has deleted its claim.
const lookAgain = time.Second

// passClaims waits until the delays of the dead claims ahead are over, and deletes these. No entry is ahead in any
// queue of the attempt, so all delays run side by side. It returns when something has changed.
func (a *attempt) passClaims(ctx context.Context) error {
	due := time.Now()
	for _, e := range a.entries {
		for _, c := range e.wait.claims {
			end, known := e.q.shared.sights.delayEnds(c, a.q.shared.lockDelay)
			if !known {
				return e.wait.look(ctx)
			}
			if end.After(due) {
				due = end
			}
		}
	}
	if left := time.Until(due); left > 0 {
		if !a.told {
			a.told = true
			a.waiting().wait.tell(ctx)
		}
		if !lease.Sleep(ctx, min(left, lookAgain)) {
			return retry.ContextErr(ctx)
		}
		if left > lookAgain {
			return a.lookBehindClaims(ctx)
		}
	}
	return a.clear(ctx)
}

// lookBehindClaims looks again in each queue in which dead claims are ahead.
func (a *attempt) lookBehindClaims(ctx context.Context) error {
	began := time.Now()
	for _, e := range a.entries {
		if e.wait.isFree() || !e.wait.lookSent.Before(began) { // the look at an earlier queue read this one, too
			continue
		}
		if err := e.wait.look(ctx); err != nil {
			return err
		}
	}
	if a.waiting() == nil { // another waiter has cleared them, or their holders were told
		a.noteReply(began)
	}
	return nil
}

// clear deletes the dead claims ahead, whose delays are over. It compares the attempt's own entries, so it is a look,
// too: when it has deleted all claims, the attempt holds. Otherwise it looks again.
func (a *attempt) clear(ctx context.Context) error {
	began := time.Now()
	var dead []ahead.Claim // in all queues
	for _, e := range a.entries {
		if !e.wait.isFree() {
			e.say(lease.Waited, lease.EntryStep{})
		}
		dead = append(dead, e.wait.claims...)
	}
	for batch := range slices.Chunk(dead, requests.MaxOps-len(a.entries)) {
		sent := time.Now()
		var r requests.Reply
		err := a.entries[0].retry(ctx, func(ctx context.Context) (err error) {
			r, err = a.clearing(batch).Once(ctx, a.q.host.Sender(), requests.Write)
			return err
		})
		if err != nil {
			return err
		}
		a.noteReply(began)
		if !r.Succeeded { // by another waiter, or by its holder; or by a copy that was not answered
			return a.lookBehindClaims(ctx)
		}
		a.revision, a.lookSent = r.Header.Revision, sent
	}
	more := false // a look reads MaxClaims at most
	for _, e := range a.entries {
		e.wait.claims, more = nil, more || e.wait.more
	}
	if more {
		return a.lookBehindClaims(ctx)
	}
	return nil
}

// noteReply records the first reply that says that dead claims are out of the way. Its request was due at that time. A
// late reply costs the delay once more, because a former holder is told by a poll, and a poll needs a quorum, too:
//
//	0.0 s  the members lose touch with each other. A, revoked just before, polls and hears nothing
//	2.0 s  A's delay is over. B sends the clear, and waits
//	9.0 s  the members meet again, and answer B first. A's poll is on its way: B waits until 11 s
//
// The delay does not run a third time, or a slow network would keep the attempt from holding.
// tests/models/quietmodel has this rule.
func (a *attempt) noteReply(due time.Time) {
	if a.delayed {
		return
	}
	lockDelay := a.q.shared.lockDelay
	a.delayed, a.late = true, lockDelay > 0 && time.Since(due) > lockDelay/4
}

// delayOnceMore waits for the lock delay, and looks again.
func (a *attempt) delayOnceMore(ctx context.Context) error {
	a.late = false
	if !lease.Sleep(ctx, a.q.shared.lockDelay) {
		return retry.ContextErr(ctx)
	}
	return a.entries[0].wait.look(ctx)
}

// clearing is the Txn that deletes some claims. It compares their revisions, because a later entry may have the same
// key. It compares the mod revisions of the attempt's own entries, because an entry that is being removed must not
// hold, and must not make room for those behind it:
//
//	rev 10  A's claim is dead
//	rev 12  B puts its entry, and waits for A's delay
//	rev 15  an administrator moves B's entry to a short lease: create revision 12, mod revision 15
//	        B's clear compares mod = 12, and is refused. B queues again
func (a *attempt) clearing(claims []ahead.Claim) requests.Txn {
	var t requests.Txn
	for _, e := range a.entries {
		t.If = append(t.If, clientv3.Compare(clientv3.ModRevision(e.key), "=", e.rev))
	}
	for _, c := range claims {
		t.If = append(t.If, ahead.CreatedAt(c.Key, c.Rev))
		t.Then = append(t.Then, clientv3.OpDelete(c.Key))
	}
	return t
}
