package queue

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"

	"github.com/holdfast-go/holdfast/internal/ahead"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/permits"
	"github.com/holdfast-go/holdfast/internal/requests"
)

// Semaphore is a name of which several hold at a time: entries with weights, the permits, as far as they fit into the
// limit, which stands in etcd.
type Semaphore struct{ queue *Queue } // of all its permits; what puts one is made by Permits

// NewSemaphore returns a semaphore with that limit. Its entries are NAMESPACE/sem/NAME/@/….
func NewSemaphore(host lease.Host, name string, limit int) *Semaphore {
	q := New(host, holdfast.KindSemaphore, name)
	if q.limit = limit; q.err == nil {
		q.err = checkLimit(limit)
	}
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
	case weight > q.limit:
		q.err = q.limitErr(q.limit, weight)
	}
	return &q
}

// Limit reads the limit in etcd; 0 if there is none yet.
func (s *Semaphore) Limit(ctx context.Context) (n int, err error) {
	q := s.All()
	err = q.WhileOpen(ctx, func(ctx context.Context) error {
		kv, err := s.readKey(ctx)
		if kv == nil {
			return err
		}
		now, err := q.readLimit(kv)
		n = now.Permits
		return err
	})
	return n, err
}

// Resize changes the limit from the one that s names to another one. It returns a *holdfast.LimitError if the limit in
// etcd is neither.
func (s *Semaphore) Resize(ctx context.Context, to int) error {
	q := s.All()
	return q.WhileOpen(ctx, func(ctx context.Context) error {
		if err := checkLimit(to); err != nil {
			return err
		}
		return lease.Retry(ctx, q.host, func(ctx context.Context) error { return s.resize(ctx, to) })
	})
}

func (s *Semaphore) resize(ctx context.Context, to int) error {
	q := s.queue
	kv, err := s.readKey(ctx)
	for err == nil {
		now := layout.Limit{Permits: q.limit} // if there is none
		if kv != nil {
			now, err = q.readLimit(kv)
		}
		switch {
		case err != nil || kv != nil && now.Permits == to:
			return err
		case now.Permits != q.limit:
			return q.limitErr(now.Permits, 0)
		}
		kv, err = q.putLimit(ctx, now.Mod, to)
	}
	return err
}

// readKey reads the limit's key; nil: there is none.
func (s *Semaphore) readKey(ctx context.Context) (*mvccpb.KeyValue, error) {
	q := s.queue
	r, err := q.host.Sender().Get(ctx, clientv3.OpGet(q.At.LimitKey()))
	if err != nil {
		return nil, err
	}
	return requests.First(r.Kvs), nil
}

func checkLimit(n int) error {
	if layout.ValidLimit(n) {
		return nil
	}
	return &holdfast.ArgumentError{Argument: "n", Reason: fmt.Sprintf("is not between 1 and %d", layout.MaxPermits)}
}

// limitErr says that the limit in etcd is not the one that the program names, or that a weight is above it.
func (q *Queue) limitErr(limit, weight int) error {
	return &holdfast.LimitError{Name: q.At.Name, Limit: limit, Named: q.limit, Weight: weight}
}

// readLimit reads the value of the limit's key. nil: another client has deleted it.
func (q *Queue) readLimit(kv *mvccpb.KeyValue) (layout.Limit, error) {
	name, key := names.Quote(q.At.Name), names.Quote(q.At.LimitKey())
	if kv == nil {
		return layout.Limit{}, fmt.Errorf("another client has deleted the limit of semaphore %s at %s; try again: "+
			"the next acquisition puts it", name, key)
	}
	now, ok := layout.LimitIn(kv)
	if !ok {
		return now, fmt.Errorf("the limit of semaphore %s at %s is %.64q: put a number from 1 to %d there, such as \"3\"",
			name, key, kv.Value, layout.MaxPermits)
	}
	return now, nil
}

// ensureLimit puts the limit if its key, as it was read, is missing. It returns a *holdfast.LimitError if the program
// names another limit than stands.
func (q *Queue) ensureLimit(ctx context.Context, kv *mvccpb.KeyValue) (err error) {
	if kv == nil {
		if kv, err = q.putLimit(ctx, 0, q.limit); err != nil {
			return err
		}
	}
	now, err := q.readLimit(kv)
	if err == nil && now.Permits != q.limit {
		err = q.limitErr(now.Permits, 0)
	}
	return err
}

// putLimit puts a limit, if the one in etcd has that mod revision; 0: if there is none. It returns what stands then.
func (q *Queue) putLimit(ctx context.Context, mod int64, n int) (*mvccpb.KeyValue, error) {
	key := q.At.LimitKey()
	put, get := clientv3.OpPut(key, layout.Limit{Permits: n}.String()), clientv3.OpGet(key)
	unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", mod)
	t := requests.Txn{If: []clientv3.Cmp{unchanged}, Then: []clientv3.Op{put, get}, Else: []clientv3.Op{get}}
	r, err := t.Ask(ctx, q.host.Sender(), requests.Write)
	if err != nil {
		return nil, err
	}
	return r.First(len(r.Responses) - 1), nil
}

// checkRoom returns ErrOccupied, with the place, if the permits that q asks for are not free, and no dead claim alone
// is in the way.
func (q *Queue) checkRoom(ctx context.Context) error {
	return q.WhileOpen(ctx, func(ctx context.Context) error {
		from, end := q.At.Semaphore()
		look := ahead.Look(q.Scope, 0)
		r, err := requests.ReadAll(ctx, q.host.Sender(), append([]clientv3.Op{
			clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithKeysOnly()), clientv3.OpGet(q.At.LimitKey()),
		}, look...)...)
		if err != nil || r.First(1) == nil {
			return err
		}
		if err := q.ensureLimit(ctx, r.First(1)); err != nil {
			return err
		}
		v := permits.Read(q.At, r.Range(0).Kvs...)
		if _, free := v.Room(q.limit); len(v.Waiting) > 0 || free < q.weight {
			return &ahead.Error{Place: ahead.Read(q.Scope, r, 2, 0, nil).Place(q.Scope), Err: ErrOccupied}
		}
		return nil
	})
}
