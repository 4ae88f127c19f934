package queue

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/requests"
)

// checkFree returns why the put with Request.Try would fail: an entry stands.
func (s Set) checkFree(ctx context.Context) error {
	if q := s[0]; q.limit != 0 {
		return q.checkRoom(ctx)
	}
	for _, q := range s {
		if err := q.occupancy(ctx); err != nil {
			return s.naming(err, q)
		}
	}
	return s.checkEmpty(ctx)
}

// occupancy returns ErrOccupied, with the place, if goroutines of this session are in the line of q. The head may not
// have its entry yet.
func (q *Queue) occupancy(ctx context.Context) *Error {
	head, length := q.shared.lines.shared(q.At.Entries)
	if head == nil {
		return nil
	}
	return &Error{Place: head.placeBehind(ctx, length), Err: ErrOccupied}
}

// naming adds the name of a queue to the place in err, if there are several.
func (s Set) naming(err *Error, q *Queue) error {
	if len(s) > 1 {
		err.Place.Name = q.At.Name
	}
	return err
}

// checkEmpty reads whether the queues are empty. If not, it returns ErrOccupied, with the place in the first occupied
// queue.
func (s Set) checkEmpty(ctx context.Context) error {
	first := s[0]
	return first.WhileOpen(ctx, func(ctx context.Context) error {
		ask := requests.Ops{first.shared.getEpoch} // 1 and 2 for each queue
		for _, q := range s {
			ask.Add(q.placeReads(0)...)
		}
		r, err := requests.ReadAll(ctx, first.host.Sender(), ask...)
		if err != nil {
			return err
		}
		for i, q := range s {
			if at := 1 + 2*i; r.Range(at+1).Count > 0 {
				return s.naming(&Error{Place: q.placeIn(r, at, 0, r.Range(0).Kvs), Err: ErrOccupied}, q)
			}
		}
		return nil
	})
}

// checkRoom returns ErrOccupied, with the place, unless the permits are free, or only dead claims are in the way.
func (q *Queue) checkRoom(ctx context.Context) error {
	return q.WhileOpen(ctx, func(ctx context.Context) error {
		from, end := q.At.Semaphore()
		r, err := requests.ReadAll(ctx, q.host.Sender(), append([]clientv3.Op{
			clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithKeysOnly()), clientv3.OpGet(q.At.LimitKey()),
		}, q.placeReads(0)...)...)
		if err != nil || r.First(1) == nil {
			return err
		}
		if err := q.ensureLimit(ctx, r.First(1)); err != nil {
			return err
		}
		v := standingIn(q.At, r.Range(0).Kvs...)
		if _, free := v.room(q.limit); len(v.waiting) > 0 || free < q.weight {
			return &Error{Place: q.placeIn(r, 2, 0, nil), Err: ErrOccupied}
		}
		return nil
	})
}
