package queue

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// semaphore is what the queues of one semaphore have in common.
type semaphore struct {
	permits int                          // the limit that the program names
	seen    atomic.Pointer[layout.Limit] // the limit in etcd as it was read last; nil: it was not
}

// NewSemaphore returns the queue of a semaphore with that limit. Its entries are NAMESPACE/sem/NAME/@/…, through what
// Permits returns.
func NewSemaphore(host lease.Host, name string, limit int) *Queue {
	q := New(host, "sem", name)
	q.sem = &semaphore{permits: limit}
	if name := (*holdfast.NameError)(nil); errors.As(q.err, &name) {
		name.Kind = "semaphore"
	}
	if q.err == nil && !layout.ValidLimit(limit) {
		q.err = badLimit()
	}
	return q
}

func badLimit() error {
	return &holdfast.ArgumentError{Argument: "n", Reason: fmt.Sprintf("is not between 1 and %d", layout.MaxPermits)}
}

// Permits returns the queue as attempts use it that ask for that many permits at once.
func (q *Queue) Permits(weight int) *Queue {
	if q == nil {
		return nil
	}
	permits := *q
	permits.weight = weight
	switch {
	case q.err != nil:
	case weight < 1:
		permits.err = &holdfast.ArgumentError{Argument: "weight", Reason: "is not positive"}
	case weight > q.sem.permits:
		permits.err = permits.tooHeavy(q.sem.permits)
	}
	return &permits
}

func (q *Queue) tooHeavy(limit int) error {
	return &holdfast.LimitError{Name: q.at.Name, Limit: limit, Named: q.sem.permits, Weight: q.weight}
}

// parseLimit reads the value of the limit's key.
func (q *Queue) parseLimit(kv *mvccpb.KeyValue) (layout.Limit, error) {
	p, ok := layout.LimitIn(kv)
	if !ok {
		return layout.Limit{}, fmt.Errorf("the limit of semaphore %s at %s is %.64q: put two numbers from 1 to %d there, "+
			"such as \"3 3\"", names.Quote(q.at.Name), names.Quote(q.at.LimitKey()), kv.Value, layout.MaxPermits)
	}
	return p, nil
}

// knownLimit is the limit as far as it is known: as it was read last, or as the program names it.
func (q *Queue) knownLimit() layout.Limit {
	if seen := q.sem.seen.Load(); seen != nil {
		return *seen
	}
	return layout.Limit{Permits: q.sem.permits, High: q.sem.permits}
}

// limitIs is true in a Txn while that is the limit.
func (q *Queue) limitIs(p layout.Limit) clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(q.at.LimitKey()), "=", p.String())
}

// sawLimit takes note of the limit in etcd, which is put if there is none.
func (q *Queue) sawLimit(ctx context.Context, kv *mvccpb.KeyValue) (layout.Limit, error) {
	var err error
	if kv == nil {
		if kv, err = q.putLimit(ctx, 0, layout.Limit{Permits: q.sem.permits, High: q.sem.permits}); err != nil {
			return layout.Limit{}, err
		}
	}
	p, err := q.parseLimit(kv)
	if err != nil {
		return layout.Limit{}, err
	}
	q.sem.seen.Store(&p)
	return p, nil
}

// whichLimit returns errLimitMoved if a put was refused because the limit in etcd is not the one that was known, and a
// *holdfast.LimitError if the program names another one. Otherwise the put had been carried out.
func (e *entry) whichLimit(ctx context.Context, kv *mvccpb.KeyValue) error {
	now, err := e.q.sawLimit(ctx, kv)
	switch {
	case err != nil:
		return err
	case now.Permits != e.q.sem.permits:
		return e.q.otherLimit(now)
	case kv == nil || now.Mod != e.permit.limit.Mod:
		return errLimitMoved
	default:
		return errEntryGone
	}
}

// otherLimit says that the limit in etcd is not the one that the program names.
func (q *Queue) otherLimit(p layout.Limit) error {
	return &holdfast.LimitError{Name: q.at.Name, Limit: p.Permits, Named: q.sem.permits}
}

// putLimit puts a limit, if the one in etcd has that mod revision; 0: if there is none. It returns what stands then.
func (q *Queue) putLimit(ctx context.Context, mod int64, p layout.Limit) (*mvccpb.KeyValue, error) {
	key := q.at.LimitKey()
	unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", mod)
	put, get := clientv3.OpPut(key, p.String()), clientv3.OpGet(key)
	t := txns.Txn{If: []clientv3.Cmp{unchanged}, Then: []clientv3.Op{put, get}, Else: []clientv3.Op{get}}
	resp, err := t.Ask(ctx, q.host.Sender(), attempt.Write)
	if err != nil {
		return nil, err
	}
	kv := resp.First(len(resp.Responses) - 1)
	if kv == nil {
		return nil, fmt.Errorf("another client has deleted the limit of semaphore %s at %s; try again: "+
			"the next acquisition puts it", names.Quote(q.at.Name), names.Quote(key))
	}
	return kv, nil
}

// Limit reads the limit in etcd; 0 if there is none yet.
func (q *Queue) Limit(ctx context.Context) (limit int, err error) {
	if err := q.usable(ctx); err != nil {
		return 0, err
	}
	open, cancel := withSession(ctx, q.host)
	defer cancel()
	resp, err := q.get(open, clientv3.OpGet(q.at.LimitKey()))
	if err != nil {
		return 0, q.closedErr(ctx, err)
	}
	if len(resp.Kvs) == 0 {
		return 0, nil
	}
	p, err := q.parseLimit(resp.Kvs[0])
	return p.Permits, err
}

// Resize changes the limit from the one that q names to another one. It returns a *holdfast.LimitError if the limit in
// etcd is neither.
func (q *Queue) Resize(ctx context.Context, to int) error {
	if err := q.usable(ctx); err != nil {
		return err
	}
	if !layout.ValidLimit(to) {
		return badLimit()
	}
	open, cancel := withSession(ctx, q.host)
	defer cancel()
	return q.closedErr(ctx, q.retry(open, func(ctx context.Context) error { return q.tryResize(ctx, to) }))
}

func (q *Queue) tryResize(ctx context.Context, to int) error {
	for {
		resp, err := q.get(ctx, clientv3.OpGet(q.at.LimitKey()))
		if err != nil {
			return err
		}
		from := layout.Limit{Permits: q.sem.permits, High: q.sem.permits} // there is none
		if kv := txns.First(resp.Kvs); kv != nil {
			if from, err = q.parseLimit(kv); err != nil {
				return err
			}
		}
		if from.Permits == to && from.Mod != 0 {
			return nil
		}
		if from.Permits != q.sem.permits {
			return q.otherLimit(from)
		}
		want := layout.Limit{Permits: to, High: max(from.High, to)}
		kv, err := q.putLimit(ctx, from.Mod, want)
		if err != nil {
			return err
		}
		if string(kv.Value) == want.String() {
			return nil
		}
	}
}

// Limited returns the queue of the same semaphore with another limit.
func (q *Queue) Limited(limit int) *Queue {
	limited := *q
	limited.sem = &semaphore{permits: limit}
	limited.sem.seen.Store(q.sem.seen.Load())
	return &limited
}
