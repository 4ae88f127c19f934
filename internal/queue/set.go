package queue

import "context"

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

// Acquire is Queue.Acquire for all queues of the set.
func (s Set) Acquire(ctx context.Context, r Request) (_ []*Grant, err error) {
	if len(s) == 1 {
		return s[0].queueUp(ctx, r, nil)
	}
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	q := s[0]
	ctx, r.telemetry = q.host.Telemetry().Acquire(ctx, q.at.Kind, q.at.Name)
	defer func() { r.reportEnd(ctx, err) }()

	turns := s.join(r)
	defer turns[0].ticket.endWaits()
	return acquire(ctx, turns, nil, condition{})
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

// join gives the caller a ticket in each queue. Each is the head of its line at once. Those of several queues have
// lines of their own; for one, join returns nil if its line is not empty.
func (s Set) join(r Request) []turn {
	turns := make([]turn, len(s))
	for i, q := range s {
		t := newTicket(q, r)
		if len(s) > 1 {
			t.alone, t.inSet = true, true
		}
		if i > 0 {
			t.waits, t.request.telemetry = turns[0].ticket.waits, nil
		}
		ln := q.shared.join(t, true)
		if ln == nil {
			return nil
		}
		turns[i] = turn{ln, t}
		<-t.turn
	}
	return turns
}

// Downgradable returns the queue as one acquisition uses it that is to hold alone first, and
// then beside readers: as a writer and as a reader. The entries of both stand from the
// beginning, so no writer can come in between.
func (q *Queue) Downgradable() Set { return Set{q, q.Readers()} }
