package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// awaitPermit waits until the entry holds, or returns a *holdfast.LimitError if its weight is above a limit that was
// lowered.
func (e *entry) awaitPermit(ctx context.Context) error {
	p := e.permit
	for e.ahead != nil {
		var err error
		switch {
		case p.tooHeavy():
			return e.q.tooHeavy(p.limit.Permits)
		case p.far:
			err = e.awaitMark(ctx)
		case !p.fits():
			err = e.awaitRoom(ctx)
		default:
			if left := time.Until(e.delayUntil); left > 0 {
				e.tellWaiting(ctx)
				if !sleep(ctx, left) {
					return backoff.ContextErr(ctx)
				}
			}
			err = e.retry(ctx, e.admit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *permit) tooHeavy() bool { return p.weight > p.limit.Permits }

// fits reports whether the weight fits into the limit, by what the first waiter has heard.
func (p *permit) fits() bool { return p.known && p.sum+p.weight <= p.limit.Permits }

// awaitMark waits until the entry ahead of a far one has a mark, or is gone.
func (e *entry) awaitMark(ctx context.Context) error {
	ahead := e.ahead
	return e.await(ctx, watched{
		key:  string(ahead.Key),
		over: func() bool { return e.ahead != ahead || !e.permit.far },
		look: e.lookForMark,
		hear: e.hearMark,
	})
}

// lookForMark reads the entry ahead.
func (e *entry) lookForMark(ctx context.Context) error {
	resp, err := e.readPermits(ctx, clientv3.OpGet(string(e.ahead.Key)))
	if err != nil {
		return err
	}
	now := resp.First(1)
	if !isEntry(now, e.ahead.CreateRevision) {
		return e.judgePermit(ctx, 0)
	}
	e.setAhead(e.ahead, resp.Header.Revision, false)
	e.followMark(now)
	return nil
}

// hearMark handles what the watch of the entry ahead tells.
func (e *entry) hearMark(ctx context.Context, events []*clientv3.Event) error {
	for _, event := range events {
		if event.Type == mvccpb.DELETE {
			return e.judgePermit(ctx, event.Kv.ModRevision)
		}
		if e.followMark(event.Kv); !e.permit.far {
			return nil
		}
	}
	return nil
}

// followMark makes the entry the first waiter if the one ahead has a mark.
func (e *entry) followMark(ahead *mvccpb.KeyValue) {
	if mark := layout.MarkIn(ahead); mark != 0 {
		e.isFirst(mark, false)
	}
}

// judgePermit finds out what stood ahead when the entry ahead of a far one had gone without a mark, at revision at; 0:
// that is not known.
func (e *entry) judgePermit(ctx context.Context, at int64) error {
	known := e.q.knownLimit()
	resp, err := e.readPermits(ctx, e.q.lookAtPermits(e.rev-1, at, known)...)
	if at != 0 && errors.Is(err, rpctypes.ErrCompacted) {
		return e.judgePermit(ctx, 0)
	}
	if err != nil {
		return err
	}
	seen, err := e.q.permitsIn(ctx, resp, 1, known)
	if errors.Is(err, errHigherLimit) {
		return e.judgePermit(ctx, at)
	}
	if err != nil {
		return err
	}
	if at == 0 {
		at = resp.Header.Revision
	}
	p := e.permit
	p.limit = seen.limit
	switch {
	case layout.MarkIn(seen.youngest) != 0:
		e.setAhead(seen.youngest, at, false)
		e.followMark(seen.youngest)
	case !seen.mayHold(): // it waits, so it will put a mark, or go
		e.setAhead(seen.youngest, at, false)
	default:
		ahead := e.ahead
		if seen.youngest != nil {
			ahead = seen.youngest
		}
		e.setAhead(ahead, at, true)
		e.isFirst(at, true)
		p.known, p.ahead, p.sum = true, seen.ahead, weights(seen.ahead)
	}
	return nil
}

// readPermits is readJudgement for a permit. It also tells the caller the place, if that is wanted.
func (e *entry) readPermits(ctx context.Context, ops ...clientv3.Op) (txns.Reply, error) {
	looks := e.ticket.request.OnWait != nil
	if looks {
		ops = append(ops, e.q.lookAhead(e.rev)...)
	}
	resp, err := e.readJudgement(ctx, ops...)
	if err == nil && looks {
		e.saw(e.q.aheadIn(resp, len(resp.Responses)-lookedAhead, e.rev))
		e.tellWaiting(ctx)
	}
	return resp, err
}

// awaitRoom waits until the weight of the first waiter fits into the limit.
func (e *entry) awaitRoom(ctx context.Context) error {
	p := e.permit
	return e.await(ctx, watched{
		key:  e.q.at.Entries,
		opts: []clientv3.OpOption{clientv3.WithRange(e.q.at.LimitKey() + "\x00")}, // the entries, and the limit
		over: func() bool { return p.fits() || p.tooHeavy() },
		look: e.lookForRoom,
		hear: e.hearRoom,
	})
}

// lookForRoom reads which permits stand ahead of the first waiter. What has gone since the last look, or since its
// base, it has to judge.
func (e *entry) lookForRoom(ctx context.Context) error {
	p := e.permit
	ops := []clientv3.Op{clientv3.OpGet(e.q.at.LimitKey()), e.q.permitsAhead(e.rev-1, 0)}
	if !p.known {
		ops = append(ops, e.q.permitsAhead(e.rev-1, p.base))
	}
	resp, err := e.readPermits(ctx, ops...)
	if !p.known && errors.Is(err, rpctypes.ErrCompacted) {
		// What has gone since cannot be known.
		e.setAhead(e.ahead, e.aheadSeen, true)
		e.isFirst(p.heard, true)
		p.known = true
		return e.lookForRoom(ctx)
	}
	if err != nil {
		return err
	}
	limit, err := e.q.sawLimit(ctx, resp.First(1))
	if err != nil {
		return err
	}
	stand := resp.Range(2).Kvs
	stood := p.ahead
	if !p.known {
		stood = resp.Range(3).Kvs
	}
	for _, kv := range stood {
		same := func(other *mvccpb.KeyValue) bool { return other.CreateRevision == kv.CreateRevision }
		if !slices.ContainsFunc(stand, same) {
			p.hasGone(e.q, kv, 0)
		}
	}
	p.limit, p.known, p.ahead, p.sum, p.heard = limit, true, stand, weights(stand), resp.Header.Revision
	return nil
}

// hearRoom handles what the watch of the permits and of the limit tells.
func (e *entry) hearRoom(ctx context.Context, events []*clientv3.Event) error {
	p := e.permit
	for _, event := range events {
		key := string(event.Kv.Key)
		switch {
		case key == e.q.at.LimitKey() && event.Type == mvccpb.DELETE:
			return e.lookForRoom(ctx)
		case key == e.q.at.LimitKey():
			limit, err := e.q.sawLimit(ctx, event.Kv)
			if err != nil {
				return err
			}
			p.limit = limit
		case event.Type == mvccpb.DELETE:
			p.hearDeletion(e.q, key, event.Kv.ModRevision)
		}
		p.heard = max(p.heard, event.Kv.ModRevision)
	}
	return nil
}

// hearDeletion handles the deletion of a permit at a revision.
func (p *permit) hearDeletion(q *Queue, key string, at int64) {
	for i, kv := range p.ahead {
		if string(kv.Key) == key {
			p.ahead = slices.Delete(slices.Clone(p.ahead), i, i+1)
			p.sum = weights(p.ahead)
			p.hasGone(q, kv, at)
			return
		}
	}
	for i := range p.gone { // the look after the watch stood has found it before
		if g := &p.gone[i]; g.key == key && g.at == 0 {
			g.at = at
		}
	}
}

// hasGone records that a permit ahead is gone, which is to be judged.
func (p *permit) hasGone(q *Queue, kv *mvccpb.KeyValue, at int64) {
	if session, ours := q.sessionKeyOf(kv); ours {
		p.gone = append(p.gone, goneAhead{string(kv.Key), session, at})
	}
}

// admit has the first waiter hold. It knows that its weight fits, and nothing joins ahead of it, so one Txn compares
// the rest: that the limit is the one it knows, and that the sessions of the permits that have gone exist. It puts the
// mark.
func (e *entry) admit(ctx context.Context) error {
	p := e.permit
	stand, few := p.sessionsStand()
	if !few {
		e.delayForGone()
		return nil
	}
	now := time.Now()
	r, err := e.commit(ctx, txns.Txn{
		If: append([]clientv3.Cmp{
			e.unmarked(), clientv3.Compare(clientv3.ModRevision(e.q.at.LimitKey()), "=", p.limit.Mod),
		}, stand...),
		Then: []clientv3.Op{e.putMark(p.heard, now)},
		Else: []clientv3.Op{clientv3.OpGet(e.key), clientv3.OpGet(e.q.at.LimitKey())},
	})
	if err != nil {
		return err
	}
	if r.Succeeded {
		e.admitted(r.Header.Revision)
		e.sawAll(now)
		return nil
	}
	own, kv := r.First(0), r.First(1)
	switch {
	case isEntry(own, e.rev) && layout.MarkIn(own) != 0: // put by an earlier copy, which was not answered
		e.admitted(own.ModRevision)
		e.sawAll(now)
		return nil
	case !isEntry(own, e.rev) || own.ModRevision != e.rev:
		return errEntryGone
	}
	limit, err := e.q.sawLimit(ctx, kv)
	if err != nil || limit.Mod != p.limit.Mod {
		p.limit = limit
		return err
	}
	return e.judgeGone(ctx)
}

// admitted records that the entry holds since its mark was put, at a revision.
func (e *entry) admitted(at int64) {
	e.permit.mod, e.revision = at, at
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ahead, e.delayUntil = nil, time.Time{}
}

// judgeGone finds out whether a permit ahead went together with its session key. Then the lock delay begins.
func (e *entry) judgeGone(ctx context.Context) error {
	p := e.permit
	var ops []clientv3.Op
	for _, g := range p.gone {
		ops = append(ops, clientv3.OpGet(g.session, clientv3.WithRev(g.at), clientv3.WithCountOnly()))
	}
	for some := range slices.Chunk(ops, maxOps) {
		resp, err := e.readPermits(ctx, some...)
		if errors.Is(err, rpctypes.ErrCompacted) {
			e.delayForGone()
			return nil
		}
		if err != nil {
			return err
		}
		if anyAbsent(resp.Responses[1 : 1+len(some)]) {
			e.delayForGone()
			return nil
		}
	}
	p.base, p.gone = e.servedWith(p.heard), nil
	return nil
}

// servedWith is served, once what has gone up to a revision is judged.
func (e *entry) servedWith(heard int64) int64 {
	if base := e.served(); base != 0 {
		return max(base, heard)
	}
	return 0
}

// delayForGone begins the lock delay for what has gone.
func (e *entry) delayForGone() {
	p := e.permit
	p.base = e.served()
	p.due, p.gone = p.heard, nil
	e.setAhead(e.ahead, p.heard, true)
}
