package queue

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/awaiting"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/permits"
	"github.com/holdfast-go/holdfast/internal/reads"
	"github.com/holdfast-go/holdfast/internal/sending"
	"github.com/holdfast-go/holdfast/internal/steps"
	"github.com/holdfast-go/holdfast/internal/telemetry"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// await waits until the entry holds. It returns a *holdfast.LimitError if its weight is above a limit that was lowered,
// and ErrOccupied for a TryAcquire that does not fit.
func (p *permit) await(ctx context.Context) error {
	e := p.w.e
	defer e.q.shared.endWait(p)
	for !p.holds {
		var err error
		switch {
		case ctx.Err() != nil:
			err = backoff.ContextErr(ctx)
		case !p.judged:
			err = e.retry(ctx, p.look)
		case p.next.TooHeavy:
			err = e.q.limit.Err(p.limit.Permits, e.q.weight)
		case len(p.next.Batch) > 0:
			err = e.retry(ctx, p.admit)
		case len(p.w.claims) > 0:
			if err = e.of.passClaims(ctx); len(p.w.claims) == 0 {
				p.judged = false // they are deleted
			}
		case p.turn:
			e.q.shared.beginWait(p)
			err = p.watch(ctx)
			telemetry.Woken(ctx)
		case p.tries:
			err = ErrOccupied
		default:
			err = e.retry(ctx, p.convert)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// look asks etcd what the entry is to do. A turn that waits for another one reads the nearest ahead. The front reads
// all that was put before it, and the turns behind it that one Txn can mark. So does a turn that looks again while its
// watch is silent: if the front hangs, it holds up no one.
func (p *permit) look(ctx context.Context) error {
	e, at := p.w.e, p.w.e.q.At
	if p.holds {
		return p.ask(ctx, nil, func(txns.Reply) error { return nil })
	}
	if p.w.ahead != nil && (p.looked.IsZero() || time.Since(p.looked) < hangs) {
		return p.ask(ctx, txns.Ops{turnsAhead(at, e.rev)}, func(r txns.Reply) error {
			p.sawAhead(r.Range(0).Kvs, r.Header.Revision)
			return nil
		})
	}
	from, end := at.Semaphore()
	turns, endOfTurns := at.Turns()
	return p.ask(ctx, txns.Ops{
		clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithMaxCreateRev(e.rev-1)),
		clientv3.OpGet(turns, clientv3.WithRange(endOfTurns), clientv3.WithMinCreateRev(e.rev),
			clientv3.WithLimit(permits.MaxBatch),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)),
		clientv3.OpGet(at.LimitKey()),
	}, func(r txns.Reply) error { return p.sawAll(ctx, r) })
}

// hangs is the time after which a turn that looks again also looks after the front.
const hangs = time.Second

// ask sends a flat Txn, since a Txn in it would make it a write. If the own entry stands as it was known, saw reads the
// replies. If it was marked meanwhile, it holds.
func (p *permit) ask(ctx context.Context, then txns.Ops, saw func(txns.Reply) error) error {
	e, sent := p.w.e, time.Now()
	r, err := txns.Txn{
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(e.key), "=", e.modRevision())},
		Then: then, Else: []clientv3.Op{clientv3.OpGet(e.key)}, // of a key alone, etcd 3.7 does not tell the lease
	}.Ask(ctx, e.q.host.Sender(), sending.Read)
	if err != nil {
		return err
	}
	if p.looked = time.Now(); r.Succeeded {
		e.of.saw(r.Header.Revision, sent)
		err = saw(r)
		p.w.tell(ctx)
		return err
	}
	// Version 2 on the own lease: it was put, marked, and nothing else. An administrator's notice is a put, too.
	own := r.First(0)
	if !p.turn || p.holds || !reads.IsEntry(own, e.rev) || own.Version != 2 || own.Lease != int64(e.of.lease.ID()) {
		return ErrEntryGone
	}
	p.admitted(own.ModRevision, r.Header.Revision, sent)
	return nil
}

// sawAll records what the look of a front shows.
func (p *permit) sawAll(ctx context.Context, r txns.Reply) (err error) {
	e, q := p.w.e, p.w.e.q
	if r.First(2) == nil { // deleted by hand
		_, err = q.limit.WhyRefused(ctx, nil, 0)
		return err
	}
	if p.limit, err = q.limit.Parse(r.First(2)); err != nil {
		return err
	}
	v := permits.Read(q.At, append(r.Range(0).Kvs, r.Range(1).Kvs...)...)
	if p.turn {
		p.next = v.Turn(e.rev, p.limit)
	} else {
		p.next = v.Permit(e.rev, q.weight, p.limit)
	}
	p.w.ahead, p.w.claims, p.holds, p.judged = p.next.Behind, p.next.Dead, p.next.Hold, true
	e.reach(placed)
	delays := false
	for _, c := range p.w.claims {
		delays = delays || !c.Acquitted
	}
	e.say(steps.Step{Action: steps.Judged, Read: r.Header.Revision, Delays: delays})
	q.shared.sights.noteDead(p.w.claims, time.Now())
	return p.w.examine(ctx)
}

// watch waits until the turn ahead is marked or gone or, at the front, until a permit goes or the limit is changed.
func (p *permit) watch(ctx context.Context) error {
	q, ahead := p.w.e.q, p.w.ahead
	c := awaiting.Change{
		Host: q.host, Streams: &q.shared.streams, Look: p.look,
		Over: func() bool {
			same := p.w.ahead == ahead || p.w.ahead != nil && ahead != nil && p.w.ahead.CreateRevision == ahead.CreateRevision
			return p.holds || !p.judged || !same || p.next.TooHeavy || len(p.next.Batch) > 0 || len(p.w.claims) > 0
		},
	}
	if ahead == nil {
		from, end := q.At.Semaphore()
		c.Key, c.Opts, c.Hear = from, []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithPrevKV()}, p.hearRoom
		return c.Await(ctx)
	}
	c.Key, c.Hear = string(ahead.Key), p.hearAhead
	p.looked = time.Time{} // a busy etcd creates the watch late, which does not mean that the front hangs
	// All turns together look a few times a second, in case the front hangs.
	c.Recheck = max(hangs, min(time.Duration(p.w.position)*hangs/4, awaiting.RecheckAfter))
	return c.Await(ctx)
}

// hearAhead handles what the watch of the turn ahead tells. If that one was marked, so was this one, or it is the
// front.
func (p *permit) hearAhead(ctx context.Context, events []*clientv3.Event) error {
	for _, event := range events {
		if event.IsModify() {
			p.w.ahead = nil
		}
	}
	if len(events) == 0 {
		return nil
	}
	return p.look(ctx)
}

// hearRoom handles what the watch of the front tells: whether a permit or a dead claim has gone, the limit was changed,
// or the own turn was marked by another session.
func (p *permit) hearRoom(ctx context.Context, events []*clientv3.Event) error {
	at := p.w.e.q.At
	for _, event := range events {
		key := string(event.Kv.Key)
		switch {
		case event.Type == mvccpb.DELETE && !waited(at, event.PrevKv), key == at.LimitKey(), key == p.w.e.key:
			return p.look(ctx)
		}
	}
	return nil
}

// waited reports whether a key was that of a turn that waited, or its claim.
func waited(at layout.Queue, was *mvccpb.KeyValue) bool {
	if was == nil || was.Version != 1 {
		return false
	}
	key := string(was.Key)
	return at.IsTurn(key) || at.IsClaim(key) && at.IsTurn(at.EntryOf(key))
}
