package queue

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/requests"
)

// Semaphore is a name with several holders at a time: entries with weights, the permits, as far as they fit into the
// limit in etcd.
type Semaphore struct{ queue *Queue } // of all permits; Permits returns the queue that puts them

// NewSemaphore returns a semaphore with that limit. Its entries are NAMESPACE/sem/NAME/@/….
func NewSemaphore(host *lease.Host, name string, limit int) *Semaphore {
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

// Permits returns the queue for attempts to get so many permits at once.
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
		kv, err := q.readLimit(ctx)
		if kv == nil {
			return err
		}
		now, err := q.limitIn(kv)
		n = now.Permits
		return err
	})
	return n, err
}

// Resize changes the limit in etcd from that of s to another. A *holdfast.LimitError says that the limit in etcd is
// neither.
func (s *Semaphore) Resize(ctx context.Context, to int) error {
	q := s.All()
	return q.WhileOpen(ctx, func(ctx context.Context) error {
		if err := checkLimit(to); err != nil {
			return err
		}
		return lease.Retry(ctx, q.host.Env, func(ctx context.Context) error {
			kv, err := q.readLimit(ctx)
			if err != nil {
				return err
			}
			return q.changeLimit(ctx, kv, to)
		})
	})
}

// readLimit reads the limit's key; nil: there is none.
func (q *Queue) readLimit(ctx context.Context) (*mvccpb.KeyValue, error) {
	r, err := q.host.Sender.Get(ctx, clientv3.OpGet(q.At.LimitKey()))
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

// limitErr is the error for a limit other than the program names, or for a weight above it.
func (q *Queue) limitErr(limit, weight int) error {
	return &holdfast.LimitError{Name: q.At.Name, Limit: limit, Named: q.limit, Weight: weight}
}

// limitIn reads the value of the limit's key.
func (q *Queue) limitIn(kv *mvccpb.KeyValue) (layout.Limit, error) {
	now, ok := layout.LimitIn(kv)
	if !ok {
		return now, fmt.Errorf("the limit of semaphore %s at %s is %.64q: put a number from 1 to %d there, such as \"3\"",
			names.Quote(q.At.Name), names.Quote(q.At.LimitKey()), kv.Value, layout.MaxPermits)
	}
	return now, nil
}

// changeLimit changes the limit in etcd, if there is none yet or it is q.limit. kv is the limit's key, as it was read.
// A *holdfast.LimitError says that the limit is neither q.limit nor to.
func (q *Queue) changeLimit(ctx context.Context, kv *mvccpb.KeyValue, to int) (err error) {
	key := q.At.LimitKey()
	for {
		now := layout.Limit{Permits: q.limit} // if there is none
		if kv != nil {
			if now, err = q.limitIn(kv); err != nil || now.Permits == to {
				return err
			}
		}
		if now.Permits != q.limit {
			return q.limitErr(now.Permits, 0)
		}
		r, err := requests.Txn{
			If:   []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", now.Mod)},
			Then: []clientv3.Op{clientv3.OpPut(key, layout.Limit{Permits: to}.String())},
			Else: []clientv3.Op{clientv3.OpGet(key)},
		}.Ask(ctx, q.host.Sender, requests.Write)
		if err != nil || r.Succeeded {
			return err
		}
		kv = r.First(0)
	}
}

// maxBatch is how many turns one Txn marks: etcd takes 128 operations, and counts those of the Txns in it.
const maxBatch = 125

// standing is what one read shows of a semaphore.
type standing struct {
	waiting []*mvccpb.KeyValue // the waiting turns, the oldest first

	live, taken int         // weights of permits and marked turns; taken counts those with only a claim left, too
	dead        []deadClaim // acquitted: of a turn without a mark, so it never held
}

// standingIn sorts keys of a semaphore. Permits and marked turns count as taken, so kvs must have no permit younger
// than the entry in question. A claim without its permit or turn in kvs counts as dead, so kvs must have both.
func standingIn(at layout.Keyspace, kvs ...*mvccpb.KeyValue) (s standing) {
	stands := make(map[int64]bool, len(kvs)/2)
	for _, kv := range kvs {
		key := string(kv.Key)
		if at.IsClaim(key) {
			continue
		}
		stands[kv.CreateRevision] = true
		if at.IsTurn(key) && kv.Version == 1 {
			s.waiting = append(s.waiting, kv)
		} else {
			s.live += layout.WeightOf(key) // 0 of the limit
		}
	}
	s.taken = s.live
	for _, kv := range kvs {
		if key := string(kv.Key); !stands[kv.CreateRevision] { // a claim
			entry := at.EntryOf(key)
			// A claim is marked with its turn. Without a mark its turn never held, and costs no delay.
			waited := at.IsTurn(entry) && kv.Version == 1
			if !waited {
				s.taken += layout.WeightOf(entry)
			}
			s.dead = append(s.dead, deadClaim{
				key: key, rev: kv.CreateRevision, acquitted: waited, moved: layout.WasMoved(at, kv),
			})
		}
	}
	slices.SortFunc(s.waiting, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
	return s
}

// inTheWay returns the dead claims that an entry without room deletes. Claims that cost a delay are among them only if
// their room is enough.
func (s standing) inTheWay(weight, limit int) (dead []deadClaim) {
	for _, c := range s.dead {
		if c.acquitted || s.live+weight <= limit {
			dead = append(dead, c)
		}
	}
	return dead
}

// next is what an entry of a semaphore does next. The zero next says nothing: the entry looks.
type next struct {
	hold     bool
	tooHeavy bool               // it never fits into the limit
	batch    []*mvccpb.KeyValue // it marks these turns
	dead     []deadClaim        // it waits for the delays of these claims, and deletes them
	wait     bool               // it waits for the turn ahead or, at the front, for permits to go; a permit has no room
	behind   *mvccpb.KeyValue   // the waiting turn ahead
}

// forTurn decides for a waiting turn, created at rev.
func (s standing) forTurn(rev int64, weight int, limit layout.Limit) (n next) {
	n.batch = fitting(s.waiting, limit.Permits-s.taken) // a turn behind marks the front as well: the front may hang
	i := slices.IndexFunc(s.waiting, func(kv *mvccpb.KeyValue) bool { return kv.CreateRevision == rev })
	switch {
	case i > 0:
		n.behind = s.waiting[i-1]
	case len(n.batch) == 0:
		n.tooHeavy, n.dead = weight > limit.Permits, s.inTheWay(weight, limit.Permits)
	}
	n.wait = !n.tooHeavy && len(n.batch)+len(n.dead) == 0
	return n
}

// fitting returns the first turns that fit, as many as one Txn marks.
func fitting(waiting []*mvccpb.KeyValue, left int) []*mvccpb.KeyValue {
	for i, kv := range waiting {
		if left -= layout.WeightOf(string(kv.Key)); left < 0 || i == maxBatch {
			return waiting[:i]
		}
	}
	return waiting
}

// forPermit decides for a permit created at rev, by what stands ahead of it.
func (s standing) forPermit(rev int64, weight int, limit layout.Limit) (n next) {
	// Nothing joins ahead of it, so it fitted if it fits now, unless the limit was changed since:
	//
	//	rev 10  A puts a permit, and holds. The limit is 1
	//	rev 12  B puts a permit without room, and the reply is lost
	//	rev 14  the limit is 3: C is admitted
	//	rev 16  the limit is 2: A and B alone would fit
	if limit.Mod >= rev {
		n.wait = true
	} else if n.hold = s.taken+weight <= limit.Permits; !n.hold {
		n.dead = s.inTheWay(weight, limit.Permits)
		n.wait = len(n.dead) == 0
	}
	return n
}
