package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/session"
)

// Sighting is what was seen at the front of a queue: who holds.
type Sighting struct {
	Entry    *mvccpb.KeyValue // nil: the queue is empty
	Token    fencing.Token    // of Entry
	Revision int64            // the store's revision at which it was so
	Sent     time.Duration    // when the read was sent that saw Entry standing, by the session's clock
}

// same reports whether two sightings show the same entry with the same value.
func (s Sighting) same(other Sighting) bool {
	if s.Entry == nil || other.Entry == nil {
		return s.Entry == other.Entry
	}
	return s.holds(other.Entry) && s.Entry.ModRevision == other.Entry.ModRevision
}

// holds reports whether kv is the entry at the front, whatever its value.
func (s Sighting) holds(kv *mvccpb.KeyValue) bool {
	return s.Entry != nil && string(s.Entry.Key) == string(kv.Key) && s.Entry.CreateRevision == kv.CreateRevision
}

// Prefix is what the keys of all entries begin with.
func (q *Queue) Prefix() string { return q.entries }

// Holder reads who holds: one linearizable read. It ends with ctx's error,
// session.ErrClosed, or what etcd said that no retry can mend.
func (q *Queue) Holder(ctx context.Context) (Sighting, error) {
	if err := q.usable(ctx); err != nil {
		return Sighting{}, err
	}
	if q.sess.Base().Context().Err() != nil {
		return Sighting{}, session.ErrClosed
	}
	open, cancel := q.untilClosed(ctx)
	defer cancel()
	s, err := q.sight(open, Sighting{})
	if err != nil {
		return Sighting{}, q.orClosed(ctx, err)
	}
	return s, nil
}

// sight is Holder; it takes the token of an entry that was seen before from
// that sighting.
func (q *Queue) sight(ctx context.Context, before Sighting) (Sighting, error) {
	var s Sighting
	err := q.retry(ctx, func(ctx context.Context) error {
		s = Sighting{Sent: q.sess.Base().Clock()()}
		// In one Txn, so that the epoch is that of the same revision. A Txn of
		// reads is linearizable as its reads are.
		resp, err := q.sess.Client().Txn(ctx).Then(
			clientv3.OpGet(q.entries, clientv3.WithFirstCreate()...),
			clientv3.OpGet(q.sess.Base().EpochKey()),
		).Commit()
		if err != nil {
			return err
		}
		s.Revision = resp.Header.Revision
		first := resp.Responses[0].GetResponseRange().Kvs
		if len(first) == 0 {
			return nil
		}
		s.Entry = first[0]
		if before.holds(s.Entry) {
			s.Token = before.Token
			return nil
		}
		epoch, err := q.epochAt(ctx, resp.Responses[1].GetResponseRange().Kvs, s.Entry.CreateRevision)
		if err != nil {
			return err
		}
		s.Token, err = fencing.NewToken(epoch, s.Entry.CreateRevision)
		return err
	})
	if err != nil {
		return Sighting{}, err
	}
	return s, nil
}

// epochAt is the epoch that was in force at rev, given what stands now. Where
// the history that far back is compacted it is given as 0: a token that is too
// small shuts nobody out.
func (q *Queue) epochAt(ctx context.Context, now []*mvccpb.KeyValue, rev int64) (int64, error) {
	if len(now) == 0 || now[0].CreateRevision > rev {
		return 0, nil
	}
	kv := now[0]
	if kv.ModRevision > rev {
		then, err := q.sess.Client().Get(ctx, q.sess.Base().EpochKey(), clientv3.WithRev(rev))
		if errors.Is(err, rpctypes.ErrCompacted) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		if len(then.Kvs) == 0 {
			return 0, nil
		}
		kv = then.Kvs[0]
	}
	epoch, err := strconv.ParseInt(string(kv.Value), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("fencing epoch at %s is not a number: %.64q", session.Quote(q.sess.Base().EpochKey()), kv.Value)
	}
	return epoch, nil
}
