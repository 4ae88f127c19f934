package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/txns"
)

var (
	// errGateMoved: the session key was put again after the request was made.
	errGateMoved = errors.New("the session key was put again after this request")
	// errKeyGone: the session key does not exist, or only in an older version, from a backup.
	errKeyGone = errors.New("the session key is missing, or older than the session knows it")
	// errAheadLeft: the entry to hand off is no longer behind the one that it waited for.
	errAheadLeft = errors.New("the entry ahead is gone")
	// errLimitMoved: the request is to be sent again, with the limit that is known now.
	errLimitMoved = errors.New("the limit of the semaphore is another than this request compares")
)

// giveUpWait is how long a call continues after its context has ended: for the reply to a request in flight, then for
// the removal of its entry. A healthy etcd needs far less. Otherwise the call returns, and the session continues in the
// background.
const giveUpWait = 250 * time.Millisecond

// slowPut is the duration after which etcd's client may have sent a put twice:
// one copy may still be carried out although the other was answered.
const slowPut = time.Second

// condition of a put, beyond that the entry does not exist and the session key has not moved.
type condition struct {
	empty bool   // the queue is empty
	now   bool   // the permit can be held at once; otherwise it is removed again
	after *entry // this entry stands and may be removed, which the same Txn does
}

// put puts the entries of the attempt into their queues, once however often the request is sent, and finds out which
// entry is ahead of each. It returns ctx's error, errOccupied, errEntryGone (another client deleted c.after or one of
// these entries), or etcd's error.
//
// Requests get giveUpWait after ctx has ended, because the entry of an answered put can be removed by its revision;
// otherwise it needs the sweeper.
func (e *entry) put(ctx context.Context, c condition) error {
	rctx, cancel := e.requestContext(ctx, giveUpWait)
	defer cancel()
	return e.retry(ctx, func(ctx context.Context) error {
		for e.stage < created {
			if c.after != nil {
				if err := c.after.awaitRemovable(ctx); err != nil {
					return err
				}
			}
			err := e.tryPut(rctx, c)
			switch {
			case errors.Is(err, errAheadLeft):
				err = c.after.judgeUnknown(ctx)
			case errors.Is(err, errGateMoved), errors.Is(err, errLimitMoved):
				err = backoff.ContextErr(ctx) // if nil, send it with the new gate
			}
			if err != nil {
				return err
			}
		}
		for _, m := range e.set {
			if err := m.locate(rctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// tryPut sends the put and reads its reply. The session key's mod revision is the gate: a copy of the put that etcd
// carries out after the sweeper has put that key again does nothing.
func (e *entry) tryPut(ctx context.Context, c condition) error {
	gate := e.lease.Gate()
	n := len(e.set)
	cmps := append(make([]clientv3.Cmp, 0, n+2), clientv3.Compare(clientv3.ModRevision(e.sessionKey()), "=", gate))
	// The operations of a Txn see what those before them did: the removal, then
	// the reads of what is ahead, then the puts.
	then := make([]clientv3.Op, 2*n+1)
	then[n] = e.q.shared.getEpoch
	for i, m := range e.set {
		cmps = append(cmps, createdAt(m.key, 0))
		then[i], then[n+1+i] = m.q.youngest, clientv3.OpPut(m.key, m.value, clientv3.WithLease(m.lease.ID()))
		if c.empty {
			// etcd loads every key of the range for this, so it is only asked after a
			// read has found the queue empty.
			from, end := m.q.conflicting()
			cmps = append(cmps, clientv3.Compare(clientv3.CreateRevision(from).WithRange(end), "=", 0))
		}
		if m.permit != nil {
			limit := m.q.knownLimit()
			cmps = append(cmps, m.q.limitIs(limit))
			then[i] = clientv3.OpTxn(nil, m.q.lookAtPermits(0, 0, limit), nil)
			m.permit.limit = limit
		}
	}
	if c.after != nil {
		cmps = append(cmps, c.after.removalCmps()...)
		then = slices.Concat([]clientv3.Op{clientv3.OpDelete(c.after.key)}, c.after.look(), then)
	}

	began := time.Now()
	t := txns.Txn{If: cmps, Then: then}
	if !e.q.at.Foreign && n == 1 && e.permit == nil { // foreign prefixes may contain each other
		t.About = e.q.at.Entries
	}
	r, err := e.commit(ctx, t)
	if r.Unsent {
		return err
	}
	if r.Unanswered || time.Since(began) >= slowPut {
		e.isUnanswered(gate)
	}
	if r.Succeeded {
		e.sawAll(began)
		from := len(r.Responses) - (2*n + 1)
		if e.permit != nil {
			return e.putPermit(ctx, r.Inner(from))
		}
		epoch := r.Range(from + n).Kvs
		for i, m := range e.set {
			ahead := r.Range(from + i)
			m.setPlace(r.Header.Revision, txns.First(ahead.Kvs), r.Header.Revision, m.requeued)
			m.position = ahead.Count
			m.sawAhead(ahead, epoch)
			if tokenErr := m.takeToken(epoch); tokenErr != nil {
				err = tokenErr
			}
		}
		if c.after != nil && len(r.Responses) > 1+lookedAhead {
			c.after.looked(r, 1)
		}
		return err
	}
	if err == nil || r.Unanswered || etcderr.Classify(err) == etcderr.Unknown {
		for _, m := range e.set {
			m.reach(sent)
		}
	}
	if err != nil {
		e.q.reportUnknown("enqueue", err)
		return err
	}
	return e.whyRefused(ctx, gate, c)
}

// isUnanswered records that a copy of the put, sent at gate, may be carried out yet.
func (e *entry) isUnanswered(gate int64) {
	for _, m := range e.set {
		m.unansweredAt = gate
	}
	e.q.shared.orphans.scanSoon()
}

// whyRefused reads why etcd did not carry out the put. nil: an earlier copy had put the entry, and its create revision
// is known now.
func (e *entry) whyRefused(ctx context.Context, gate int64, c condition) error {
	ops := []clientv3.Op{getMeta(e.sessionKey())}
	for _, m := range e.set {
		ops = append(ops, getMeta(m.key))
	}
	looks := c.empty && len(e.set) == 1
	switch {
	case c.after != nil:
		ops = append(ops, getMeta(c.after.key))
	case looks:
		ops = append(ops, e.q.lookAhead(0)...)
	case e.permit != nil:
		ops = append(ops, clientv3.OpGet(e.q.at.LimitKey()))
	}
	resp, err := e.q.read(ctx, ops...)
	if err != nil {
		return err
	}
	key, own := resp.First(0), 0
	for i, m := range e.set {
		if kv := resp.First(1 + i); kv != nil {
			own++
			m.setCreated(kv.CreateRevision)
		}
	}
	if own > 0 {
		// If all copies that we know of were answered, etcd's client sent one
		// more, and perhaps others.
		e.isUnanswered(gate)
		if own < len(e.set) { // an earlier copy had put all
			return errEntryGone
		}
		return nil
	}
	switch {
	case key == nil || key.ModRevision < gate: // revoked, or deleted by hand: the session finds out which
		return backoff.Again(errKeyGone)
	case key.ModRevision > gate:
		e.lease.SawGate(key.ModRevision)
		return errGateMoved
	case c.after != nil && !isEntry(resp.First(2), c.after.rev):
		return errEntryGone
	case c.after != nil && c.after.ahead != nil && c.after.stage < held:
		return errAheadLeft
	case e.permit != nil:
		return e.whichLimit(ctx, resp.First(2))
	case c.empty:
		if looks {
			e.saw(e.q.aheadIn(resp, 2, 0))
		}
		return errOccupied
	default:
		return errEntryGone // an earlier copy had put it, and another client has deleted it
	}
}

// locate reads which entry was ahead at the entry's create revision. That is unknown if an earlier copy of the put,
// whose reply was lost, put the entry.
func (e *entry) locate(ctx context.Context) error {
	if e.stage != created {
		return nil
	}
	if e.permit != nil {
		return e.locatePermit(ctx)
	}
	at, compacted := e.rev, false
	resp, err := e.readJudgement(ctx, e.q.nearest(e.rev-1, e.rev), e.q.shared.getEpoch)
	if errors.Is(err, rpctypes.ErrCompacted) {
		// What stood then, and how it left, can no longer be known.
		compacted = true
		if resp, err = e.readJudgement(ctx, e.q.nearest(e.rev-1, 0), e.q.shared.getEpoch); err == nil {
			at = resp.Header.Revision
		}
	}
	if err != nil {
		return err
	}
	e.setPlace(e.rev, resp.First(1), at, e.requeued || compacted)
	return e.takeToken(resp.Range(2).Kvs)
}

// takeToken makes the fencing token. A reader has none: it is not alone, so nothing could be fenced by one.
func (e *entry) takeToken(epoch []*mvccpb.KeyValue) (err error) {
	if !e.q.reader {
		e.token, err = layout.Token(epoch, e.rev)
	}
	return err
}

func (e *entry) sessionKey() string { return e.q.host.SessionKey(e.lease.ID()) }

func (e *entry) commit(ctx context.Context, t txns.Txn) (txns.Reply, error) {
	return e.q.shared.commits.Commit(ctx, t)
}

// retry calls op until it succeeds or fails for good, with the session's pauses, until ctx ends or the lease is lost.
// Each request of op has its own timeout. Contexts and pauses are made only after the first failure.
func (e *entry) retry(ctx context.Context, op func(ctx context.Context) error) error {
	err := op(ctx)
	if err == nil {
		return nil
	}
	ctx, cancel := e.untilLost(ctx)
	defer cancel()
	if ended := backoff.ContextErr(ctx); ended != nil {
		return fmt.Errorf("%w; last error: %w", ended, etcderr.WithConnection(e.q.host.Client().ActiveConnection(), err))
	}
	called := true
	return e.q.retry(ctx, func(ctx context.Context) error {
		if called {
			called = false
			return err
		}
		return op(ctx)
	})
}
