package queue

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/permits"
	"github.com/holdfast-go/holdfast/internal/places"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// Semaphore is a name of which several hold at a time: entries with weights, the permits, as far as they fit into the
// limit, which stands in etcd.
type Semaphore struct{ queue *Queue } // of all its permits; what puts one is made by Permits

// NewSemaphore returns a semaphore with that limit. Its entries are NAMESPACE/sem/NAME/@/….
func NewSemaphore(host lease.Host, name string, limit int) *Semaphore {
	q := New(host, holdfast.KindSemaphore, name)
	if q.err == nil {
		q.err = permits.Check(limit)
	}
	q.limit = permits.New(host, q.At, limit)
	return &Semaphore{q}
}

// All returns the queue of all permits, for what is done without one.
func (s *Semaphore) All() *Queue {
	if s == nil {
		return nil
	}
	return s.queue
}

// Permits returns the queue as attempts use it that ask for that many permits at once.
func (s *Semaphore) Permits(weight int) *Queue {
	if s == nil {
		return nil
	}
	q := *s.queue
	q.weight = weight
	switch {
	case q.err != nil:
	case weight < 1:
		q.err = &holdfast.ArgumentError{Argument: "weight", Reason: "is not positive"}
	case weight > q.limit.Named:
		q.err = q.limit.Err(q.limit.Named, weight)
	}
	return &q
}

// Limit reads the limit in etcd; 0 if there is none yet.
func (s *Semaphore) Limit(ctx context.Context) (n int, err error) {
	q := s.All()
	err = q.WhileOpen(ctx, func(ctx context.Context) error {
		n, err = q.limit.Read(ctx)
		return err
	})
	return n, err
}

// Resize changes the limit from the one that s names to another one. It returns a *holdfast.LimitError if the limit in
// etcd is neither.
func (s *Semaphore) Resize(ctx context.Context, to int) error {
	q := s.All()
	return q.WhileOpen(ctx, func(ctx context.Context) error { return q.limit.Resize(ctx, to) })
}

// checkRoom returns ErrOccupied, with the place, if the permits that q asks for are not free, and no dead claim alone
// is in the way.
func (q *Queue) checkRoom(ctx context.Context) error {
	return q.WhileOpen(ctx, func(ctx context.Context) error {
		from, end := q.At.Semaphore()
		look := places.Look(q.Scope, 0)
		r, err := txns.Read(ctx, q.host.Sender(), append([]clientv3.Op{
			clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithKeysOnly()), clientv3.OpGet(q.At.LimitKey()),
		}, look...)...)
		if err != nil || r.First(1) == nil {
			return err
		}
		if err := q.limit.Ensure(ctx, r.First(1)); err != nil {
			return err
		}
		v := permits.Read(q.At, r.Range(0).Kvs...)
		if _, free := v.Room(q.limit.Named); len(v.Waiting) > 0 || free < q.weight {
			return &places.Error{Place: places.Read(q.Scope, r, 2, 0, nil).Place(q.Scope), Err: ErrOccupied}
		}
		return nil
	})
}
