package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
)

// MaxPermits is the largest limit of a semaphore: a waiter may have to read that many entries.
const MaxPermits = 1024

// semaphore is what the queues of one semaphore have in common.
type semaphore struct {
	permits int                     // the limit that the program names
	seen    atomic.Pointer[permits] // the limit in etcd as it was read last; nil: it was not
}

// permits is the limit of a semaphore as it stands in etcd, at the key of limitKey. Nothing but Resize changes it, and
// nothing of holdfast deletes it.
type permits struct {
	limit int
	high  int   // the largest limit there ever was
	mod   int64 // the key's mod revision
}

// NewSemaphore returns the queue of a semaphore with that limit. Its entries are NAMESPACE/sem/NAME/@/…, through what
// Permits returns.
func NewSemaphore(host lease.Host, name string, limit int) *Queue {
	q := New(host, "sem", name)
	q.sem = &semaphore{permits: limit}
	if name := (*holdfast.NameError)(nil); errors.As(q.err, &name) {
		name.Kind = "semaphore"
	}
	if q.err == nil && !validLimit(limit) {
		q.err = badLimit()
	}
	return q
}

func validLimit(n int) bool { return 0 < n && n <= MaxPermits }

func badLimit() error {
	return &holdfast.ArgumentError{Argument: "n", Reason: fmt.Sprintf("is not between 1 and %d", MaxPermits)}
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
	return &holdfast.LimitError{Name: q.name, Limit: limit, Named: q.sem.permits, Weight: q.weight}
}

// limitKey is the key of a semaphore's limit. It sorts behind all entries.
func (q *Queue) limitKey() string { return strings.TrimSuffix(q.entries, "/") + "limit" }

func (p permits) String() string { return fmt.Sprintf("%d %d", p.limit, p.high) }

// LimitIn returns the limit that the value of a limit's key says; 0 if it says none.
func LimitIn(kv *mvccpb.KeyValue) int {
	p, _ := permitsOf(kv)
	return p.limit
}

func permitsOf(kv *mvccpb.KeyValue) (p permits, ok bool) {
	limit, high, _ := strings.Cut(string(kv.Value), " ")
	p = permits{limit: validWeight(limit), high: validWeight(high), mod: kv.ModRevision}
	if p.limit == 0 || p.high < p.limit {
		return permits{}, false
	}
	return p, true
}

// parseLimit reads the value of the limit's key.
func (q *Queue) parseLimit(kv *mvccpb.KeyValue) (permits, error) {
	p, ok := permitsOf(kv)
	if !ok {
		return permits{}, fmt.Errorf("the limit of semaphore %s at %s is %.64q: put two numbers from 1 to %d there, "+
			"such as \"3 3\"", names.Quote(q.name), names.Quote(q.limitKey()), kv.Value, MaxPermits)
	}
	return p, nil
}

// knownLimit is the limit as far as it is known: as it was read last, or as the program names it.
func (q *Queue) knownLimit() permits {
	if seen := q.sem.seen.Load(); seen != nil {
		return *seen
	}
	return permits{limit: q.sem.permits, high: q.sem.permits}
}

// limitIs is true in a Txn while that is the limit.
func (q *Queue) limitIs(p permits) clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(q.limitKey()), "=", p.String())
}

// sawLimit takes note of the limit in etcd, which is put if there is none.
func (q *Queue) sawLimit(ctx context.Context, kv *mvccpb.KeyValue) (permits, error) {
	var err error
	if kv == nil {
		if kv, err = q.putLimit(ctx, 0, permits{limit: q.sem.permits, high: q.sem.permits}); err != nil {
			return permits{}, err
		}
	}
	p, err := q.parseLimit(kv)
	if err != nil {
		return permits{}, err
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
	case now.limit != e.q.sem.permits:
		return e.q.otherLimit(now)
	case kv == nil || now.mod != e.permit.limit.mod:
		return errLimitMoved
	default:
		return errEntryGone
	}
}

// otherLimit says that the limit in etcd is not the one that the program names.
func (q *Queue) otherLimit(p permits) error {
	return &holdfast.LimitError{Name: q.name, Limit: p.limit, Named: q.sem.permits}
}

// putLimit puts a limit, if the one in etcd has that mod revision; 0: if there is none. It returns what stands then.
func (q *Queue) putLimit(ctx context.Context, mod int64, p permits) (*mvccpb.KeyValue, error) {
	key := q.limitKey()
	unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", mod)
	put, get := clientv3.OpPut(key, p.String()), clientv3.OpGet(key)
	send := func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return q.host.Client().Txn(ctx).If(unchanged).Then(put, get).Else(get).Commit()
	}
	resp, err := attempt.Ask(ctx, q.host.Sender(), attempt.Write, send)
	if err != nil {
		return nil, err
	}
	kv := rangeAt(resp, len(resp.Responses)-1)
	if kv == nil {
		return nil, fmt.Errorf("another client has deleted the limit of semaphore %s at %s; try again: "+
			"the next acquisition puts it", names.Quote(q.name), names.Quote(key))
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
	resp, err := q.get(open, clientv3.OpGet(q.limitKey()))
	if err != nil {
		return 0, q.closedErr(ctx, err)
	}
	if len(resp.Kvs) == 0 {
		return 0, nil
	}
	p, err := q.parseLimit(resp.Kvs[0])
	return p.limit, err
}

// Resize changes the limit from the one that q names to another one. It returns a *holdfast.LimitError if the limit in
// etcd is neither.
func (q *Queue) Resize(ctx context.Context, to int) error {
	if err := q.usable(ctx); err != nil {
		return err
	}
	if !validLimit(to) {
		return badLimit()
	}
	open, cancel := withSession(ctx, q.host)
	defer cancel()
	return q.closedErr(ctx, q.retry(open, func(ctx context.Context) error { return q.tryResize(ctx, to) }))
}

func (q *Queue) tryResize(ctx context.Context, to int) error {
	for {
		resp, err := q.get(ctx, clientv3.OpGet(q.limitKey()))
		if err != nil {
			return err
		}
		from := permits{limit: q.sem.permits, high: q.sem.permits} // there is none
		if kv := first(resp.Kvs); kv != nil {
			if from, err = q.parseLimit(kv); err != nil {
				return err
			}
		}
		if from.limit == to && from.mod != 0 {
			return nil
		}
		if from.limit != q.sem.permits {
			return q.otherLimit(from)
		}
		want := permits{limit: to, high: max(from.high, to)}
		kv, err := q.putLimit(ctx, from.mod, want)
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
