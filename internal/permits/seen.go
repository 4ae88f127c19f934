package permits

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// Look reads what decides about a permit: the oldest ahead, the youngest with its value, and the limit. Of the oldest
// it reads those that may make up so many permits, and one more. Replies reads the replies.
func (l *Limit) Look(maxCreate, at int64, most int) []clientv3.Op {
	return []clientv3.Op{
		l.scope.OldestAheadAt(maxCreate, at, int64(most)+1),
		l.scope.YoungestAheadAt(maxCreate, at), clientv3.OpGet(l.scope.At.LimitKey()),
	}
}

// Seen is what Look has read.
type Seen struct {
	Ahead    []*mvccpb.KeyValue
	All      bool  // Ahead is all that stand ahead; otherwise there may be more than were read
	Count    int64 // of all entries, at whatever revision and age
	Youngest *mvccpb.KeyValue
	Limit    layout.Limit
	Reply    txns.Reply // these were the first in it
}

var (
	// errHigherLimit: more permits may be held than were read.
	errHigherLimit = errors.New("the limit was higher than it was known to be")
	// ErrMoved: the request is to be sent again, with the limit that is known now.
	ErrMoved = errors.New("the limit of the semaphore is another than this request compares")
)

// Replies reads the replies to Look, the first in r. If it returns errHigherLimit, they must be read again.
func (l *Limit) Replies(ctx context.Context, r txns.Reply, most int) (seen Seen, err error) {
	ahead := r.Range(0).Kvs
	seen = Seen{Ahead: ahead, All: len(ahead) <= most, Count: r.Range(1).Count, Youngest: r.First(1), Reply: r}
	seen.Limit, err = l.Ensure(ctx, r.First(2))
	if err == nil && seen.Limit.Permits > most {
		err = errHigherLimit
	}
	return seen, err
}

// See sends what Look reads, and reads the replies: as many permits as the limit may be.
func (l *Limit) See(ctx context.Context, maxCreate, at int64,
	send func(context.Context, txns.Ops) (txns.Reply, error),
) (Seen, error) {
	for {
		most := l.Known().High
		r, err := send(ctx, l.Look(maxCreate, at, most))
		if err != nil {
			return Seen{}, err
		}
		if seen, err := l.Replies(ctx, r, most); !errors.Is(err, errHigherLimit) {
			return seen, err
		}
	}
}

// Weights sums the weights of some permits.
func Weights(kvs []*mvccpb.KeyValue) (sum int) {
	for _, kv := range kvs {
		sum += layout.WeightOf(string(kv.Key))
	}
	return sum
}

// MayHold reports whether the youngest permit that was seen may hold without a mark, because there was room for it when
// it was put. Otherwise it waits: the weights up to it exceed the limit that was in force then. If the limit has
// changed since, that one is not known, but it was at most the highest at which any permit that stands may have been
// put.
func (s Seen) MayHold() bool {
	sum := Weights(s.Ahead)
	return sum <= s.Limit.Permits || sum <= s.Limit.High && s.Limit.Mod > s.Youngest.CreateRevision
}
