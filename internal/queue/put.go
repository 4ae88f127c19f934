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

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/names"
)

var (
	// errGateMoved: the session key was put again since the request was made.
	errGateMoved = errors.New("the session key has moved on")
	// errKeyGone: the session key does not stand, or only as an older one, from a
	// backup.
	errKeyGone = errors.New("the session key does not stand as the session has put it")
	// errAheadLeft: the entry to be handed over has lost the one ahead of it.
	errAheadLeft = errors.New("the entry ahead has left")
)

// slowPut is the time after which etcd's client may have repeated a put by
// itself: one copy may still be on its way although the other was answered.
const slowPut = time.Second

// condition of a put, beyond that the entry does not stand and the session key
// was not put again.
type condition struct {
	empty bool   // only into an empty queue
	after *entry // only in the place of this one, which leaves in the same Txn
}

// put brings the entry into the queue, once, however often it is sent, and finds
// out what stands ahead of it. It ends with ctx's error, errOccupied,
// errEntryGone (after is no longer there, or this entry was deleted), or what
// etcd said.
//
// Requests run on sending, which ends later than ctx: a request that was just
// sent is answered in a moment, and then its entry can be removed by its
// revision.
func (e *entry) put(ctx, sending context.Context, c condition) error {
	defer e.q.local.sweeper.enqueuing(e)()
	return e.q.retry(ctx, func(ctx context.Context) error {
		for e.stage < created {
			if c.after != nil {
				if err := c.after.settled(ctx); err != nil {
					return err
				}
			}
			err := e.enqueue(sending, c)
			switch err {
			case errAheadLeft:
				err = c.after.judgeUnknown(ctx)
			case errGateMoved:
				err = backoff.ContextErr(ctx) // nil: send it again
			}
			if err != nil {
				return err
			}
		}
		if e.stage == created {
			return e.locate(sending)
		}
		return nil
	})
}

// enqueue sends the put. The session key's mod revision is its gate: a copy that
// arrives after the sweeper has put that key again does nothing.
func (e *entry) enqueue(ctx context.Context, c condition) error {
	gate := e.lease.Gate()
	t := txn{cmps: []clientv3.Cmp{absent(e.key), clientv3.Compare(clientv3.ModRevision(e.sessionKey()), "=", gate)}, alone: e.q.foreign}
	if c.empty {
		// Loads every key of the prefix, on every member: only used when a
		// read has just found the queue empty.
		t.cmps = append(t.cmps, clientv3.Compare(clientv3.CreateRevision(e.q.entries).WithPrefix(), "=", 0))
	}
	if c.after != nil {
		t.cmps = append(t.cmps, c.after.mayLeave()...)
		t.then = append(t.then, clientv3.OpDelete(c.after.key))
	}
	t.then = append(t.then, // each sees what those before it did
		e.q.nearest(0, 0),
		e.getEpoch(),
		clientv3.OpPut(e.key, e.value, clientv3.WithLease(e.lease.ID())))

	began := time.Now()
	r, err := e.commit(ctx, t)
	if r.unsent {
		return err
	}
	if err == nil || r.open || etcderr.Classify(err) == etcderr.Unknown {
		e.advance(sent)
	}
	if r.open || time.Since(began) >= slowPut {
		e.openAt = gate
		e.q.local.census.soon()
	}
	if err != nil {
		e.q.unknown("enqueue", err)
		return err
	}
	if !r.succeeded {
		return e.refused(ctx, gate, c)
	}
	n := len(r.responses)
	ahead := r.responses[n-3].GetResponseRange()
	e.create(r.revision)
	e.placeAt(first(ahead.Kvs), r.revision, ahead.Count)
	return e.takeToken(r.responses[n-2].GetResponseRange().Kvs)
}

// refused finds out why a put was refused. Own entry stands: an earlier copy
// arrived.
func (e *entry) refused(ctx context.Context, gate int64, c condition) error {
	ops := []clientv3.Op{
		clientv3.OpGet(e.key, clientv3.WithKeysOnly()),
		clientv3.OpGet(e.sessionKey(), clientv3.WithKeysOnly()),
	}
	if c.after != nil {
		ops = append(ops, clientv3.OpGet(c.after.key, clientv3.WithKeysOnly()))
	}
	resp, err := e.q.read(ctx, ops...)
	if err != nil {
		return err
	}
	own, key := rangeAt(resp, 0), rangeAt(resp, 1)
	if own != nil {
		// Without a copy that we know of, etcd's client repeated the put by
		// itself, and there may be more.
		e.openAt = gate
		e.q.local.census.soon()
		e.create(own.CreateRevision)
		return nil
	}
	switch {
	case key == nil || key.ModRevision < gate: // revoked, or deleted by hand: the session finds out and says
		return backoff.Again(errKeyGone)
	case key.ModRevision > gate:
		e.lease.SawGate(key.ModRevision)
		return errGateMoved
	case c.after != nil && !isEntry(rangeAt(resp, 2), c.after.rev):
		return errEntryGone
	case c.after != nil && c.after.ahead != nil && c.after.stage < held:
		return errAheadLeft
	case c.empty:
		return errOccupied
	default:
		return errEntryGone // it had been put, and was deleted by another client
	}
}

// locate reads what stood ahead of an entry whose create revision is known, at
// that revision.
func (e *entry) locate(ctx context.Context) error {
	resp, err := e.q.read(ctx, e.q.nearest(e.rev-1, e.rev), e.getEpoch())
	at := e.rev
	if errors.Is(err, rpctypes.ErrCompacted) {
		if resp, err = e.q.read(ctx, e.q.nearest(e.rev-1, 0), e.getEpoch()); err == nil {
			at = resp.Header.Revision
			e.delay()
		}
	}
	if err != nil {
		return err
	}
	e.placeAt(rangeAt(resp, 0), at, 0)
	return e.takeToken(resp.Responses[1].GetResponseRange().Kvs)
}

// located finds out what stands ahead of an entry of which only the create
// revision is known. Its token may still not be known then.
func (e *entry) located(ctx context.Context) error {
	if e.stage == created {
		if err := e.locate(ctx); e.stage == created {
			return err
		}
	}
	return nil
}

// placeAt notes the place that the answer to a put shows.
func (e *entry) placeAt(ahead *mvccpb.KeyValue, revision, position int64) {
	if e.anew {
		e.delay() // first: Close removes an entry that is placed and has no delay
	}
	e.place(ahead, revision)
	e.position, e.revision = position, revision
}

// takeToken makes the token of the entry's revision and the epoch that stood
// then.
//
// An epoch that was written after the entry must not be used: entries queued
// behind this one may carry the older epoch, and their tokens would be smaller.
func (e *entry) takeToken(epochKVs []*mvccpb.KeyValue) error {
	var epoch int64
	if len(epochKVs) > 0 {
		if epochKVs[0].ModRevision > e.rev {
			return errEpochMoved
		}
		var err error
		if epoch, err = strconv.ParseInt(string(epochKVs[0].Value), 10, 64); err != nil {
			return fmt.Errorf("fencing epoch at %s is not a number: %.64q", names.Quote(e.q.sess.EpochKey()), epochKVs[0].Value)
		}
	}
	var err error
	e.token, err = fencing.NewToken(epoch, e.rev)
	return err
}

func (e *entry) getEpoch() clientv3.Op { return clientv3.OpGet(e.q.sess.EpochKey()) }

func (e *entry) sessionKey() string { return e.q.sess.SessionKey(e.lease.ID()) }

func (e *entry) commit(ctx context.Context, t txn) (reply, error) {
	t.queue = e.q.entries
	return e.q.local.commits.commit(ctx, t)
}
