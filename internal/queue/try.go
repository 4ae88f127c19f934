package queue

import (
	"context"
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/internal/ahead"
	"github.com/holdfast-go/holdfast/internal/requests"
)

// checkFree returns why the put with Request.Try would fail: an entry stands.
func (s Set) checkFree(ctx context.Context) error {
	if q := s[0]; q.limit != 0 {
		return q.checkRoom(ctx)
	}
	for _, q := range s {
		if err := q.occupancy(ctx); err != nil {
			return s.naming(err, q) // by a goroutine of this session
		}
	}
	return s.checkEmpty(ctx)
}

// naming adds the name of a queue to the place that err may carry, if there are several.
func (s Set) naming(err error, q *Queue) error {
	if placed := (*ahead.Error)(nil); len(s) > 1 && errors.As(err, &placed) {
		placed.Place.Name = q.At.Name
	}
	return err
}

// checkEmpty reads whether the queues are empty, and returns ErrOccupied, with the place in the first that is not, or
// ErrUnconfirmed if all entries are of this session. It is called while no goroutine of this session is in the line, so
// those are left over, unless MinHold keeps one.
func (s Set) checkEmpty(ctx context.Context) error {
	first := s[0]
	return first.WhileOpen(ctx, func(ctx context.Context) error {
		ask := requests.Ops{first.shared.getEpoch} // 1 and 2 for each queue: as many as etcd takes for MaxSet
		for _, q := range s {
			look := ahead.Look(q.Scope, 0)
			ask.Add(look...)
		}
		r, err := requests.ReadAll(ctx, first.host.Sender(), ask...)
		if err != nil {
			return err
		}
		for i, q := range s {
			if err := q.emptyIn(r, 1+2*i, r.Range(0).Kvs); err != nil {
				return s.naming(err, q)
			}
		}
		return nil
	})
}

// emptyIn reads the replies to ahead.Look, which begin at response i.
func (q *Queue) emptyIn(resp requests.Reply, i int, epoch []*mvccpb.KeyValue) error {
	standing := resp.Range(i + 1)
	own := q.host.Lease().ID()
	isOwn := func(kv *mvccpb.KeyValue) bool { return q.At.IsOn(own, string(kv.Key)) }
	first := ahead.Read(q.Scope, resp, i, 0, epoch)
	switch {
	case len(standing.Kvs) == 0:
		return nil
	case standing.More || slices.ContainsFunc(standing.Kvs, func(kv *mvccpb.KeyValue) bool { return !isOwn(kv) }),
		q.shared.taken(first.Holder), q.hasOthers():
		return &ahead.Error{Place: first.Place(q.Scope), Err: ErrOccupied}
	default:
		return ErrUnconfirmed
	}
}
