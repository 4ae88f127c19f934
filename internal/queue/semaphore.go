package queue

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/calls"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/sending"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// Semaphore is a name of which several hold at a time: entries with weights, the permits, as far as they fit into the
// limit, which stands in etcd.
type Semaphore struct {
	queue   *Queue                       // of all its permits; what puts one is made by Permits
	permits int                          // the limit that the program names
	seen    atomic.Pointer[layout.Limit] // the limit in etcd as it was read last; nil: it was not
}

// NewSemaphore returns a semaphore with that limit. Its entries are NAMESPACE/sem/NAME/@/….
func NewSemaphore(host lease.Host, name string, limit int) *Semaphore {
	q := New(host, holdfast.KindSemaphore, name)
	if q.err == nil && !layout.ValidLimit(limit) {
		q.err = badLimit()
	}
	return withLimit(q, limit)
}

// withLimit returns the semaphore whose permits have that queue.
func withLimit(q *Queue, limit int) *Semaphore {
	q.sem = &Semaphore{queue: q, permits: limit}
	return q.sem
}

// Limited returns the same semaphore with another limit.
func (s *Semaphore) Limited(limit int) *Semaphore {
	q := *s.queue
	limited := withLimit(&q, limit)
	limited.seen.Store(s.seen.Load())
	return limited
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
	permits := *s.queue
	permits.weight = weight
	switch {
	case permits.err != nil:
	case weight < 1:
		permits.err = &holdfast.ArgumentError{Argument: "weight", Reason: "is not positive"}
	case weight > s.permits:
		permits.err = s.limitErr(s.permits, weight)
	}
	return &permits
}

func badLimit() error {
	return &holdfast.ArgumentError{Argument: "n", Reason: fmt.Sprintf("is not between 1 and %d", layout.MaxPermits)}
}

// limitErr says that the limit in etcd is not the one that the program names, or that a weight is above it.
func (s *Semaphore) limitErr(limit, weight int) error {
	return &holdfast.LimitError{Name: s.queue.At.Name, Limit: limit, Named: s.permits, Weight: weight}
}

// parse reads the value of the limit's key.
func (s *Semaphore) parse(kv *mvccpb.KeyValue) (layout.Limit, error) {
	p, ok := layout.LimitIn(kv)
	if !ok {
		return layout.Limit{}, fmt.Errorf("the limit of semaphore %s at %s is %.64q: put two numbers from 1 to %d there, "+
			"such as \"3 3\"", names.Quote(s.queue.At.Name), names.Quote(s.queue.At.LimitKey()), kv.Value, layout.MaxPermits)
	}
	return p, nil
}

// known is the limit as far as it is known: as it was read last, or as the program names it.
func (s *Semaphore) known() layout.Limit {
	if seen := s.seen.Load(); seen != nil {
		return *seen
	}
	return layout.Limit{Permits: s.permits, High: s.permits}
}

// is is true in a Txn while that is the limit.
func (s *Semaphore) is(p layout.Limit) clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(s.queue.At.LimitKey()), "=", p.String())
}

// ensure takes note of the limit in etcd, and puts it if there is none.
func (s *Semaphore) ensure(ctx context.Context, kv *mvccpb.KeyValue) (layout.Limit, error) {
	var err error
	if kv == nil {
		if kv, err = s.put(ctx, 0, layout.Limit{Permits: s.permits, High: s.permits}); err != nil {
			return layout.Limit{}, err
		}
	}
	p, err := s.parse(kv)
	if err != nil {
		return layout.Limit{}, err
	}
	s.seen.Store(&p)
	return p, nil
}

// put puts a limit, if the one in etcd has that mod revision; 0: if there is none. It returns what stands then.
func (s *Semaphore) put(ctx context.Context, mod int64, p layout.Limit) (*mvccpb.KeyValue, error) {
	key := s.queue.At.LimitKey()
	unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", mod)
	put, get := clientv3.OpPut(key, p.String()), clientv3.OpGet(key)
	t := txns.Txn{If: []clientv3.Cmp{unchanged}, Then: []clientv3.Op{put, get}, Else: []clientv3.Op{get}}
	resp, err := t.Ask(ctx, s.queue.host.Sender(), sending.Write)
	if err != nil {
		return nil, err
	}
	kv := resp.First(len(resp.Responses) - 1)
	if kv == nil {
		return nil, fmt.Errorf("another client has deleted the limit of semaphore %s at %s; try again: "+
			"the next acquisition puts it", names.Quote(s.queue.At.Name), names.Quote(key))
	}
	return kv, nil
}

// Limit reads the limit in etcd; 0 if there is none yet.
func (s *Semaphore) Limit(ctx context.Context) (limit int, err error) {
	q := s.All()
	err = q.WhileOpen(ctx, func(ctx context.Context) error {
		resp, err := q.host.Sender().Get(ctx, clientv3.OpGet(q.At.LimitKey()))
		if err != nil || len(resp.Kvs) == 0 {
			return err
		}
		p, err := s.parse(resp.Kvs[0])
		limit = p.Permits
		return err
	})
	return limit, err
}

// Resize changes the limit from the one that s names to another one. It returns a *holdfast.LimitError if the limit in
// etcd is neither.
func (s *Semaphore) Resize(ctx context.Context, to int) error {
	q := s.All()
	return q.WhileOpen(ctx, func(ctx context.Context) error {
		if !layout.ValidLimit(to) {
			return badLimit()
		}
		return calls.Retry(ctx, q.host, func(ctx context.Context) error { return s.tryResize(ctx, to) })
	})
}

func (s *Semaphore) tryResize(ctx context.Context, to int) error {
	for {
		r, err := txns.Read(ctx, s.queue.host.Sender(),
			clientv3.OpGet(s.queue.At.LimitKey()), s.queue.OldestAhead(0, 0, 1))
		if err != nil {
			return err
		}
		from := layout.Limit{Permits: s.permits, High: s.permits} // there is none
		if kv := r.First(0); kv != nil {
			if from, err = s.parse(kv); err != nil {
				return err
			}
		}
		if from.Permits == to && from.Mod != 0 {
			return nil
		}
		if from.Permits != s.permits {
			return s.limitErr(from.Permits, 0)
		}
		want := layout.Limit{Permits: to, High: max(from.High, to)}
		if oldest := r.First(1); oldest == nil || oldest.CreateRevision > from.Mod {
			want.High = max(from.Permits, to) // at which all were put that stand, and those that come until this is put
		}
		kv, err := s.put(ctx, from.Mod, want)
		if err != nil {
			return err
		}
		if string(kv.Value) == want.String() {
			return nil
		}
	}
}

// lookAtPermits reads what decides about a permit: the oldest ahead, the youngest with its value, and the limit.
// permitsIn reads the replies. Of the oldest it reads those that may make up so many permits, and one more.
func (s *Semaphore) lookAtPermits(maxCreate, at int64, most int) []clientv3.Op {
	return []clientv3.Op{
		s.queue.OldestAhead(maxCreate, at, int64(most)+1),
		s.queue.YoungestAhead(maxCreate, at), clientv3.OpGet(s.queue.At.LimitKey()),
	}
}

// permitsSeen is what lookAtPermits has read.
type permitsSeen struct {
	ahead    []*mvccpb.KeyValue
	all      bool  // ahead is all that stand ahead; otherwise there may be more than were read
	count    int64 // of all entries, at whatever revision and age
	youngest *mvccpb.KeyValue
	limit    layout.Limit
	reply    txns.Reply // these were the first in it
}

var (
	// errHigherLimit: more permits may be held than were read.
	errHigherLimit = errors.New("the limit was higher than it was known to be")
	// errLimitMoved: the request is to be sent again, with the limit that is known now.
	errLimitMoved = errors.New("the limit of the semaphore is another than this request compares")
)

// permitsIn reads the replies to lookAtPermits, the first in r. If it returns errHigherLimit, they must be read again.
func (s *Semaphore) permitsIn(ctx context.Context, r txns.Reply, most int) (seen permitsSeen, err error) {
	ahead := r.Range(0).Kvs
	seen = permitsSeen{ahead: ahead, all: len(ahead) <= most, count: r.Range(1).Count, youngest: r.First(1), reply: r}
	seen.limit, err = s.ensure(ctx, r.First(2))
	if err == nil && seen.limit.Permits > most {
		err = errHigherLimit
	}
	return seen, err
}

// see sends what lookAtPermits reads, and reads the replies: as many permits as the limit may be.
func (s *Semaphore) see(ctx context.Context, maxCreate, at int64,
	send func(context.Context, txns.Ops) (txns.Reply, error),
) (permitsSeen, error) {
	for {
		most := s.known().High
		r, err := send(ctx, s.lookAtPermits(maxCreate, at, most))
		if err != nil {
			return permitsSeen{}, err
		}
		if seen, err := s.permitsIn(ctx, r, most); !errors.Is(err, errHigherLimit) {
			return seen, err
		}
	}
}

// checkRoom returns ErrOccupied, with the place, if that many permits are not free.
func (s *Semaphore) checkRoom(ctx context.Context, weight int) error {
	q := s.queue
	return q.WhileOpen(ctx, func(ctx context.Context) error {
		seen, err := s.see(ctx, 0, 0, func(ctx context.Context, ask txns.Ops) (txns.Reply, error) {
			return txns.Read(ctx, q.host.Sender(), append(ask, q.lookAhead(0)...)...)
		})
		switch {
		case err != nil:
			return err
		case seen.limit.Permits != s.permits:
			return s.limitErr(seen.limit.Permits, 0)
		case weights(seen.ahead)+weight > seen.limit.Permits:
			return &PlacedError{q.aheadIn(seen.reply, 3, 0, seen.reply.Range(5).Kvs).place(q), ErrOccupied}
		default:
			return nil
		}
	})
}

func weights(kvs []*mvccpb.KeyValue) (sum int) {
	for _, kv := range kvs {
		sum += layout.WeightOf(string(kv.Key))
	}
	return sum
}

// mayHold reports whether the youngest permit that was seen may hold without a mark, because there was room for it when
// it was put. Otherwise it waits: the weights up to it exceed the limit that was in force then. If the limit has
// changed since, that one is not known, but it was at most the highest at which any permit that stands may have been
// put.
func (s permitsSeen) mayHold() bool {
	sum := weights(s.ahead)
	return sum <= s.limit.Permits || sum <= s.limit.High && s.limit.Mod > s.youngest.CreateRevision
}
