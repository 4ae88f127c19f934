package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/session"
)

var (
	// errOccupied: the queue was not empty, and empty was the condition.
	errOccupied = errors.New("somebody else is queued")
	// errEntryGone: the entry was removed by somebody else.
	errEntryGone = errors.New("the entry is no longer in the queue")
	// errEpochMoved: the epoch was bumped between the put and the answer.
	errEpochMoved = errors.New("the fencing epoch was bumped while the entry was being put")
)

// entry is one attempt's place in the queue: a key that nobody else writes for
// as long as a request of this attempt can arrive. One goroutine at a time
// works on it.
type entry struct {
	q     *Queue
	lease *session.Lease
	value string
	id    string // the last part of key and void; empty once given back, or never to be
	key   string
	void  string // the key that, once it stands, keeps the entry from appearing

	rev   int64         // create revision; 0 until an answer told it
	token fencing.Token // known together with rev

	// ambiguous: a request that would create the entry was sent and never
	// answered. It may be carried out at any later time.
	ambiguous bool

	// doubtful: such a request was answered with an error, and may have been
	// carried out all the same (the store was full). It will not be later.
	doubtful bool

	// unanswered: a request that would remove the entry was sent and never
	// answered, or answered with an error that leaves open what was done.
	unanswered bool
}

// view is what a linearizable read saw of an entry that stands.
type view struct {
	ahead    *mvccpb.KeyValue // the entry right ahead; nil: nobody conflicts
	revision int64            // the store's revision at the read
	position int64            // how many stood ahead when the entry was put, living or not
}

func newEntry(q *Queue, lease *session.Lease, value string) *entry {
	id := q.local.ids.take(lease)
	return &entry{q: q, lease: lease, value: value, id: id, key: q.entries + id, void: q.voids + id}
}

func absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}

// owned compares the create revision: any other entry at that key, before or
// after, is not meant.
func (e *entry) owned() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(e.key), "=", e.rev)
}

func (e *entry) putVoid() clientv3.Op {
	return clientv3.OpPut(e.void, "", clientv3.WithLease(e.lease.ID()))
}

// leave is what takes the entry out inside a Txn that compares owned.
func (e *entry) leave() []clientv3.Op {
	if e.ambiguous {
		return []clientv3.Op{clientv3.OpDelete(e.key), e.putVoid()}
	}
	return []clientv3.Op{clientv3.OpDelete(e.key)}
}

// condition of a put, beyond that neither the entry nor its void stands.
type condition struct {
	empty bool   // only into an empty queue
	after *entry // only in the place of this one, which leaves in the same Txn
}

// put brings the entry into the queue, once, however often it is sent, and
// returns what stands ahead of it. It ends with ctx's error, errOccupied,
// errEntryGone (after is no longer there), errEpochMoved, or what etcd said.
func (e *entry) put(ctx context.Context, c condition) (view, error) {
	t := txn{cmps: []clientv3.Cmp{absent(e.key), absent(e.void)}, alone: e.q.foreign}
	if c.empty {
		// Loads every key of the prefix, on every member: only used when a
		// read has just found the queue empty.
		t.cmps = append(t.cmps, clientv3.Compare(clientv3.CreateRevision(e.q.entries).WithPrefix(), "=", 0))
	}
	if c.after != nil {
		t.cmps = append(t.cmps, c.after.owned())
		t.then = c.after.leave()
	}
	t.then = append(t.then,
		clientv3.OpPut(e.key, e.value, clientv3.WithLease(e.lease.ID())),
		e.getEpoch(),
		clientv3.OpGet(e.q.entries, lastTwo...))

	var v view
	var verify bool
	err := e.q.retry(ctx, func(ctx context.Context) error {
		r, err := e.commit(ctx, t)
		if r.unsent {
			return err
		}
		e.ambiguous = e.ambiguous || r.open
		if err != nil {
			e.doubtful = e.q.unknown("enqueue", err) || e.doubtful
			return err
		}
		if r.succeeded {
			n := len(r.responses)
			queued := r.responses[n-1].GetResponseRange()
			v = view{ahead: second(queued.Kvs), revision: r.revision, position: queued.Count - 1}
			return e.created(r.revision, r.responses[n-2].GetResponseRange().Kvs)
		}
		verify, err = e.found(ctx)
		if err == nil && !verify {
			err = errEntryGone
			if c.empty {
				err = errOccupied
			}
		}
		return err
	})
	if err == nil && verify {
		return e.verify(ctx)
	}
	return v, err
}

// found reads whether the entry stands after all, when a put has been refused.
// To ask for it in the put's own else-branch would make every put larger for the
// sake of those few.
func (e *entry) found(ctx context.Context) (bool, error) {
	before := e.doubtful
	e.doubtful = true // as long as nobody knows
	resp, err := e.q.sess.Client().Txn(ctx).
		Then(clientv3.OpGet(e.key, clientv3.WithKeysOnly()), e.getEpoch()).
		Commit()
	if err != nil {
		return false, err
	}
	own := resp.Responses[0].GetResponseRange().Kvs
	if len(own) == 0 {
		e.doubtful = before
		return false, nil
	}
	// An earlier send of ours arrived. Without one that we know of, etcd's
	// client has repeated it by itself; who knows how often.
	e.ambiguous = true
	return true, e.created(own[0].CreateRevision, resp.Responses[1].GetResponseRange().Kvs)
}

func (e *entry) getEpoch() clientv3.Op {
	return clientv3.OpGet(e.q.sess.Base().EpochKey())
}

func (e *entry) commit(ctx context.Context, t txn) (reply, error) {
	t.queue = e.q.entries
	return e.q.local.commits.commit(ctx, t)
}

// created notes the answer to the put: the entry's revision, and with the
// epoch that stood then the token.
//
// An epoch that was written after the entry must not be used: entries queued
// behind this one may carry the older epoch, and their tokens would be smaller.
func (e *entry) created(rev int64, epochKVs []*mvccpb.KeyValue) error {
	e.rev = rev
	var epoch int64
	if len(epochKVs) > 0 {
		if epochKVs[0].ModRevision > rev {
			return errEpochMoved
		}
		var err error
		if epoch, err = strconv.ParseInt(string(epochKVs[0].Value), 10, 64); err != nil {
			return fmt.Errorf("fencing epoch at %s is not a number: %.64q", session.Quote(e.q.sess.Base().EpochKey()), epochKVs[0].Value)
		}
	}
	var err error
	e.token, err = fencing.NewToken(epoch, rev)
	return err
}

// verify reads whether the entry stands, and what is ahead of it.
func (e *entry) verify(ctx context.Context) (view, error) {
	var v view
	err := e.q.retry(ctx, func(ctx context.Context) error {
		resp, err := e.q.sess.Client().Do(ctx, e.q.front(e.rev))
		if err != nil {
			return err
		}
		kvs := resp.Get().Kvs
		if len(kvs) == 0 || string(kvs[0].Key) != e.key || kvs[0].CreateRevision != e.rev {
			return errEntryGone
		}
		v = view{ahead: second(kvs), revision: resp.Get().Header.Revision}
		return nil
	})
	return v, err
}

// second is the entry right ahead of the own one, in an answer to lastTwo.
func second(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	if len(kvs) < 2 {
		return nil
	}
	return kvs[1]
}

// remove takes the entry out and sees to it that it cannot appear later. nil:
// it was there (or may have been) and is not any more. errEntryGone: it had
// been removed by somebody else before. Other errors say what ended the
// attempts; when one of them was not answered, joined with ErrOutcomeUnknown.
func (e *entry) remove(ctx context.Context) error {
	if e.rev == 0 && !e.ambiguous && !e.doubtful {
		e.retire()
		return nil // never sent, or refused
	}
	err := e.q.retry(ctx, e.removal)
	switch {
	case err == nil:
		e.retire()
		return nil
	case backoff.Classify(err) == backoff.LeaseGone:
		// The void could not be put, and need not be: the entry has gone with
		// the lease, and nothing can be put under it any more.
		e.q.sess.Base().LeaseGone(ctx, e.lease, err)
		return err
	case e.unanswered:
		return fmt.Errorf("%w: %w", session.ErrOutcomeUnknown, err)
	default:
		return err
	}
}

// removedAtOnce is remove in one attempt. If it says false, remove is to follow.
func (e *entry) removedAtOnce(ctx context.Context) bool {
	if e.rev == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, e.q.sess.Base().RetryPolicy().Attempt)
	defer cancel()
	defer context.AfterFunc(e.lease.Context(), cancel)()
	if e.removal(quiet{ctx}) != nil {
		return false
	}
	e.retire()
	return true
}

// removal is one request of remove.
func (e *entry) removal(ctx context.Context) error {
	t := txn{then: e.leave()}
	// With rev unknown the key itself is the identity: it carries the lease
	// and a nonce, and nobody else has a request with it under way.
	if e.rev != 0 {
		t.cmps = append(t.cmps, e.owned())
		if e.ambiguous {
			// Somebody may have deleted the entry, and an unanswered send have
			// put it again since, at another revision. It is still this
			// attempt's, as its lease shows.
			again := clientv3.Compare(clientv3.LeaseValue(e.key), "=", e.lease.ID())
			t.els = append(t.els, clientv3.OpTxn([]clientv3.Cmp{again}, []clientv3.Op{clientv3.OpDelete(e.key)}, nil), e.putVoid())
		}
	}
	r, err := e.commit(ctx, t)
	if r.unsent {
		return err
	}
	e.unanswered = e.unanswered || r.open
	if err != nil {
		e.unanswered = e.q.unknown("remove", err) || e.unanswered
		return err
	}
	if !r.succeeded && !e.unanswered {
		return errEntryGone
	}
	return nil
}
