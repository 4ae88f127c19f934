package queue

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/ahead"
	"github.com/holdfast-go/holdfast/internal/permits"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/internal/telemetry"
	"github.com/holdfast-go/holdfast/internal/watching"
)

// await waits until the entry holds. It returns a *holdfast.LimitError if its weight is above a limit that was lowered,
// and ErrOccupied for a permit that does not fit.
func (p *permit) await(ctx context.Context) error {
	e := p.w.e
	for !p.next.Hold {
		var err error
		switch {
		case ctx.Err() != nil:
			err = retry.ContextErr(ctx)
		case p.next.TooHeavy:
			err = e.q.limitErr(p.limit.Permits, e.q.weight)
		case len(p.next.Batch) > 0:
			err = e.retry(ctx, p.admit)
		case len(p.w.claims) > 0:
			err = e.of.passClaims(ctx)
		case !p.next.Wait: // not known, or the claims are deleted
			err = e.retry(ctx, p.look)
		case !p.turn:
			err = ErrOccupied
		default:
			err = p.watch(ctx)
			telemetry.Woken(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hangs is the time after which a turn whose watch is silent looks after the front.
const hangs = time.Second

// look asks etcd what the entry is to do. A turn that waits for another one reads the nearest ahead.
func (p *permit) look(ctx context.Context) error {
	if p.next.Hold {
		return p.ask(ctx, nil, func(requests.Reply) error { return nil })
	}
	if p.w.ahead == nil {
		return p.lookAtAll(ctx)
	}
	return p.ask(ctx, requests.Ops{turnsAhead(p.w.e.q.At, p.w.e.rev)}, func(r requests.Reply) error {
		p.sawAhead(r.Range(0).Kvs, r.Header.Revision)
		return nil
	})
}

// lookAtAll is the look of the front: it reads all that was put before it, and the turns behind it that one Txn can
// mark. A turn behind does the same while its watch is silent: if the front hangs, it holds up no one.
func (p *permit) lookAtAll(ctx context.Context) error {
	e, at := p.w.e, p.w.e.q.At
	from, end := at.Semaphore()
	turns, endOfTurns := at.Turns()
	all := requests.Ops{
		// A younger claim would look dead: the turn that it is of may not be among those that are read.
		clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithMaxCreateRev(e.rev-1)),
		clientv3.OpGet(turns, clientv3.WithRange(endOfTurns), clientv3.WithMinCreateRev(e.rev),
			clientv3.WithLimit(permits.MaxBatch),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)),
		clientv3.OpGet(at.LimitKey()),
	}
	suspects := p.w.suspects((requests.MaxOps - len(all)) / 2)
	p.w.examine(&all, suspects)
	return p.ask(ctx, all, func(r requests.Reply) error {
		err := p.sawAll(ctx, r)
		p.w.noteExamined(r, 3, suspects)
		return err
	})
}

// ask sends a flat Txn, since a Txn in it would make it a write. If the own entry stands as it was known, saw reads the
// replies. If it was marked meanwhile, it holds.
func (p *permit) ask(ctx context.Context, then requests.Ops, saw func(requests.Reply) error) error {
	e, sent := p.w.e, time.Now()
	r, err := requests.Txn{
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(e.key), "=", e.modRevision())},
		Then: then, Else: []clientv3.Op{clientv3.OpGet(e.key)}, // of a key alone, etcd 3.7 does not tell the lease
	}.Ask(ctx, e.q.host.Sender(), requests.Read)
	if err != nil {
		return err
	}
	if r.Succeeded {
		e.of.revision, e.of.lookSent = r.Header.Revision, sent
		err = saw(r)
		p.w.tell(ctx)
		return err
	}
	// Version 2 on the own lease: it was put, marked, and nothing else. An administrator's notice is a put, too.
	own := r.First(0)
	if !p.turn || p.next.Hold || !ahead.IsEntry(own, e.rev) || own.Version != 2 || own.Lease != int64(e.of.lease.ID()) {
		return ErrEntryGone
	}
	p.admitted(own.ModRevision, r.Header.Revision, sent)
	return nil
}

// sawAll records what the look of a front shows.
func (p *permit) sawAll(ctx context.Context, r requests.Reply) (err error) {
	e, q := p.w.e, p.w.e.q
	if r.First(2) == nil { // deleted by hand
		return q.ensureLimit(ctx, nil)
	}
	if p.limit, err = q.readLimit(r.First(2)); err != nil {
		return err
	}
	v := permits.Read(q.At, append(r.Range(0).Kvs, r.Range(1).Kvs...)...)
	if p.turn {
		p.decide(v.Turn(e.rev, p.limit), r.Header.Revision)
	} else {
		p.decide(v.Permit(e.rev, q.weight, p.limit), r.Header.Revision)
	}
	return nil
}

// watch waits until the turn ahead is marked or gone or, at the front, until a permit goes or the limit is changed.
func (p *permit) watch(ctx context.Context) error {
	q, ahead := p.w.e.q, p.ahead()
	q.shared.semaphores.wait(q.At, 1)
	defer q.shared.semaphores.wait(q.At, -1)
	c := watching.Change{
		Host: q.host, Streams: &q.shared.streams, Look: p.look, Hear: p.hear,
		Over: func() bool { return !p.next.Wait || p.ahead() != ahead },
	}
	if p.w.ahead == nil {
		from, end := q.At.Semaphore()
		c.Key, c.Opts = from, []clientv3.OpOption{clientv3.WithRange(end)}
	} else {
		c.Key = string(p.w.ahead.Key)
		// All turns together look a few times a second, in case the front hangs.
		c.Again, c.Recheck = p.lookAtAll, max(hangs, min(time.Duration(p.w.position)*hangs/4, watching.RecheckAfter))
	}
	return c.Await(ctx)
}

// ahead is the create revision of the turn ahead; 0 for the front.
func (p *permit) ahead() int64 {
	if p.w.ahead == nil {
		return 0
	}
	return p.w.ahead.CreateRevision
}

// hear looks when the watch tells what may end the wait: something was deleted, or the turn ahead was marked, the own
// turn, by another session, or the limit was changed.
func (p *permit) hear(ctx context.Context, events []*clientv3.Event) error {
	news := false
	for _, event := range events {
		switch key := string(event.Kv.Key); {
		case event.Type == mvccpb.DELETE, key == p.w.e.key, key == p.w.e.q.At.LimitKey():
			news = true
		case p.w.ahead != nil:
			news, p.w.ahead = true, nil // the own turn was marked with it, or is the front
		}
	}
	if !news {
		return nil
	}
	return p.look(ctx)
}
