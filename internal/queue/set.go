package queue

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/txns"
)

// MaxSet is the largest number of queues in a Set: etcd limits a Txn to 128 operations,
// and the put of an entry takes two.
const MaxSet = 63

// Set is several queues in which one attempt has an entry each. One Txn puts all entries,
// so they have one create revision, and two attempts that meet in several queues are in
// the same order in all of them. So they never wait for each other, however they name
// their queues. The attempt holds when each of its entries is at the front of its queue.
//
// There is a hold for each queue, in the order of the queues. They end together: what
// ends one of them ends all, with the same cause, and a release of one releases all.
type Set []*Queue

// Acquire is Queue.Acquire for all queues of the set. MinHold is for sets of one queue.
func (s Set) Acquire(ctx context.Context, r Request) (_ []*Hold, err error) {
	if len(s) == 1 {
		return together(s[0].Acquire(ctx, r))
	}
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	q := s[0]
	ctx, r.telemetry = q.host.Telemetry().Acquire(ctx, q.at.Kind, q.at.Name)
	defer func() { q.reportAcquire(ctx, r, err) }()

	turns := s.join(r)
	defer turns[0].ticket.endWaits()
	return acquire(ctx, turns, nil, condition{})
}

// together returns the holds of an acquisition.
func together(h *Hold, err error) ([]*Hold, error) {
	if err != nil {
		return nil, err
	}
	return h.holds, nil
}

// TryAcquire is Queue.TryAcquire for all queues of the set: it queues in all of them or in
// none.
func (s Set) TryAcquire(ctx context.Context, r Request) (_ []*Hold, err error) {
	if len(s) == 1 {
		return together(s[0].TryAcquire(ctx, r))
	}
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	q := s[0]
	ctx, r.telemetry = q.host.Telemetry().Acquire(ctx, q.at.Kind, q.at.Name)
	defer func() { q.reportAcquire(ctx, r, err) }()

	for _, q := range s {
		if err := q.shared.occupancy(q); err != nil {
			return nil, q.naming(err) // by a goroutine of this session
		}
	}
	if err := checkEmpty(ctx, s); err != nil {
		return nil, err
	}
	return acquire(ctx, s.join(r), nil, condition{empty: true})
}

// naming adds the name of the queue to the place that err may carry.
func (q *Queue) naming(err error) error {
	if placed := (*PlacedError)(nil); errors.As(err, &placed) {
		placed.Place.Name = q.at.Name
	}
	return err
}

func (s Set) usable(ctx context.Context) error {
	if len(s) == 0 {
		return errNoQueue
	}
	for _, q := range s {
		if err := q.usable(ctx); err != nil {
			return err
		}
	}
	return nil
}

// join gives the caller a ticket in each queue. Each is the head of its line at once.
func (s Set) join(r Request) []turn {
	turns := make([]turn, len(s))
	for i, q := range s {
		t := q.newTicket(r)
		t.alone, t.inSet = true, true
		if i > 0 {
			t.waits, t.request.telemetry = turns[0].ticket.waits, nil
		}
		turns[i] = turn{q.shared.join(t, false), t}
		<-t.turn
	}
	return turns
}

// removeTogether removes the entries of a released Set by one Txn, and reports whether
// that succeeded. If not, each is to be removed by itself.
func (h *Hold) removeTogether(ctx context.Context) bool {
	rctx, cancel := h.entry.requestContext(ctx, 0)
	defer cancel()
	var t txns.Txn
	for _, each := range h.holds {
		t.If = append(t.If, each.entry.owned())
		t.Then = append(t.Then, clientv3.OpDelete(each.Key()))
	}
	r, err := h.entry.commit(rctx, t)
	if err != nil || !r.Succeeded {
		unknown := h.entry.q.reportUnknown("remove", err) || r.Unanswered
		for _, each := range h.holds {
			each.entry.removing = unknown
		}
		return false
	}
	for _, each := range h.holds {
		each.wasRemoved()
	}
	return true
}

// Together returns the holds that end with h, itself among them, in the order of the set.
func (h *Hold) Together() []*Hold { return h.holds }
