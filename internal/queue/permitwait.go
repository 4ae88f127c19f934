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
	"github.com/holdfast-go/holdfast/internal/awaiting"
	"github.com/holdfast-go/holdfast/internal/calls"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/reads"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// await waits until the entry holds, or returns a *holdfast.LimitError if its weight is above a limit that was
// lowered.
func (p *permit) await(ctx context.Context) error {
	for p.w.ahead != nil {
		var err error
		switch {
		case p.tooHeavy():
			return p.w.e.q.limit.Err(p.limit.Permits, p.weight)
		case p.far:
			err = p.awaitMark(ctx)
		case !p.fits():
			err = p.awaitRoom(ctx)
		default:
			if left := p.w.delay.left(); left > 0 {
				p.w.tell(ctx)
				if !calls.Sleep(ctx, left) {
					return backoff.ContextErr(ctx)
				}
			}
			if p.w.delay.isOver() {
				p.w.e.say(Step{Action: Waited})
			}
			err = p.w.e.retry(ctx, p.admit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *permit) tooHeavy() bool { return p.weight > p.limit.Permits }

// fits reports whether the weight fits into the limit, by what the first waiter has heard.
func (p *permit) fits() bool { return p.account.All && p.account.Sum+p.weight <= p.limit.Permits }

// awaitMark waits until the entry ahead of a far one has a mark, or is gone.
func (p *permit) awaitMark(ctx context.Context) error {
	ahead := p.w.ahead
	return awaiting.Change{
		Host: p.w.e.q.host, Streams: &p.w.e.q.shared.streams,
		Key:  string(ahead.Key),
		Over: func() bool { return p.w.ahead != ahead || !p.far },
		Look: p.lookForMark,
		Hear: p.hearMark,
	}.Await(ctx)
}

// lookForMark reads the entry ahead.
func (p *permit) lookForMark(ctx context.Context) error {
	var ask txns.Ops
	ahead := ask.Add(clientv3.OpGet(string(p.w.ahead.Key)))
	r, err := p.read(ctx, ask)
	if err != nil {
		return err
	}
	now := r.First(ahead)
	if !reads.IsEntry(now, p.w.ahead.CreateRevision) {
		return p.judge(ctx, 0)
	}
	p.w.noteAhead(p.w.ahead, r.Header.Revision, false)
	p.followMark(now, r.Header.Revision)
	return nil
}

// hearMark handles what the watch of the entry ahead tells.
func (p *permit) hearMark(ctx context.Context, events []*clientv3.Event) error {
	for _, event := range events {
		switch ahead := p.w.ahead; {
		case reads.IsEnd(event, ahead):
			return p.judge(ctx, event.Kv.ModRevision)
		case reads.IsEntry(event.Kv, ahead.CreateRevision):
			if p.followMark(event.Kv, event.Kv.ModRevision); !p.far {
				return nil
			}
		}
	}
	return nil
}

// followMark makes the entry the first waiter if the one ahead has a mark, as was read, or told, at a revision.
func (p *permit) followMark(ahead *mvccpb.KeyValue, read int64) {
	if mark := layout.MarkIn(ahead); mark != 0 {
		p.becomeFirst(mark, false)
		p.w.e.say(Step{Action: Judged, Read: read})
	}
}

// judge finds out what stood ahead when the entry ahead of a far one had gone without a mark, at revision at; 0:
// that is not known.
func (p *permit) judge(ctx context.Context, at int64) error {
	seen, err := p.w.e.q.limit.See(ctx, p.w.e.rev-1, at, p.read)
	if at != 0 && errors.Is(err, rpctypes.ErrCompacted) {
		return p.judge(ctx, 0)
	}
	if err != nil {
		return err
	}
	if at == 0 {
		at = seen.Reply.Header.Revision
	}
	p.limit = seen.Limit
	read := seen.Reply.Header.Revision
	switch {
	case layout.MarkIn(seen.Youngest) != 0:
		// Its mark does not speak of those that have gone between the two. One may have held: there was room for it
		// when it was put, while the youngest had not asked yet.
		p.w.noteAhead(seen.Youngest, at, false)
		p.becomeFirst(p.w.e.rev, false)
		p.w.e.say(Step{Action: Judged, Read: read})
	case !seen.MayHold(): // it waits, so it will put a mark, or go
		p.w.noteAhead(seen.Youngest, at, false)
		p.w.e.say(Step{Action: Judged, Read: read})
	default:
		ahead := p.w.ahead
		if seen.Youngest != nil {
			ahead = seen.Youngest
		}
		p.w.noteAhead(ahead, at, true)
		p.becomeFirst(at, true)
		p.account.Begin(seen)
		p.w.e.say(Step{Action: Judged, Read: read, Delays: true})
	}
	return nil
}

// read is wait.read. It also tells the caller the place, if that is wanted.
func (p *permit) read(ctx context.Context, ask txns.Ops) (txns.Reply, error) {
	look := p.w.e.ticket.lookToTell(&ask, p.w.e.rev)
	r, err := p.w.read(ctx, ask)
	if err == nil && look != (sight{}) {
		look.saw(r)
		p.w.tell(ctx)
	}
	return r, err
}

// awaitRoom waits until the weight of the first waiter fits into the limit.
func (p *permit) awaitRoom(ctx context.Context) error {
	at := p.w.e.q.At
	return awaiting.Change{
		Host: p.w.e.q.host, Streams: &p.w.e.q.shared.streams,
		Key:  at.Entries,
		Opts: []clientv3.OpOption{clientv3.WithRange(at.LimitKey() + "\x00")}, // the entries, and the limit
		Over: func() bool { return p.fits() || p.tooHeavy() },
		Look: p.lookForRoom,
		Hear: p.hearRoom,
	}.Await(ctx)
}

// lookForRoom reads which permits stand ahead of the first waiter. What has gone since the last look, or since it
// became the first waiter, it has to judge.
func (p *permit) lookForRoom(ctx context.Context) error {
	e := p.w.e
	var ask txns.Ops
	limitKey := ask.Add(clientv3.OpGet(e.q.At.LimitKey()))
	now := ask.Add(e.q.OldestAhead(e.rev-1, 0, 0))
	before := len(ask)
	if !p.account.All {
		ask.Add(e.q.OldestAhead(e.rev-1, p.account.Heard, 0))
	}
	r, err := p.read(ctx, ask)
	compacted := !p.account.All && errors.Is(err, rpctypes.ErrCompacted)
	if compacted {
		r, err = p.read(ctx, ask[:before])
	}
	if err != nil {
		return err
	}
	limit, err := e.q.limit.Ensure(ctx, r.First(limitKey))
	if err != nil {
		return err
	}
	stood := p.account.Stand
	switch at := r.Header.Revision; {
	case compacted: // what has gone until now cannot be known, so the lock delay begins now
		stood = nil
		p.w.noteAhead(p.w.ahead, at, true)
		p.becomeFirst(at, true)
		p.w.e.say(Step{Action: Judged, Read: at, Delays: true, Unfound: true})
	case !p.account.All:
		stood = r.Range(before).Kvs
	}
	p.limit = limit
	p.account.Look(r.Range(now).Kvs, stood, r.Header.Revision)
	return nil
}

// hearRoom handles what the watch of the permits and of the limit tells.
func (p *permit) hearRoom(ctx context.Context, events []*clientv3.Event) error {
	q := p.w.e.q
	for _, event := range events {
		key := string(event.Kv.Key)
		switch {
		case key == q.At.LimitKey() && event.Type == mvccpb.DELETE:
			return p.lookForRoom(ctx)
		case key == q.At.LimitKey() && event.Kv.ModRevision <= p.limit.Mod: // told late, and known
		case key == q.At.LimitKey():
			limit, err := q.limit.Ensure(ctx, event.Kv)
			if err != nil {
				return err
			}
			p.limit = limit
		case event.Type == mvccpb.DELETE:
			p.account.Hear(event)
		}
		p.account.Heard = max(p.account.Heard, event.Kv.ModRevision)
	}
	return nil
}

// admit has the first waiter hold. It knows that its weight fits, and nothing joins ahead of it, so one Txn compares
// the rest: that the limit is the one it knows, and that the sessions of the permits that have gone exist. It puts the
// mark.
func (p *permit) admit(ctx context.Context) error {
	e := p.w.e
	stand, few := p.account.SessionsStand(e.q.host.SessionKey)
	if !few {
		p.delayForGone(0)
		return nil
	}
	now := time.Now()
	var otherwise txns.Ops
	self, limitKey := otherwise.Add(clientv3.OpGet(e.key)), otherwise.Add(clientv3.OpGet(e.q.At.LimitKey()))
	r, err := e.q.shared.commits.Commit(ctx, txns.Txn{
		If: append([]clientv3.Cmp{
			e.unmarked(), clientv3.Compare(clientv3.ModRevision(e.q.At.LimitKey()), "=", p.limit.Mod),
		}, stand...),
		Then: []clientv3.Op{e.putMark(p.account.Heard, now)},
		Else: otherwise,
	})
	if err != nil {
		return err
	}
	if r.Succeeded {
		p.admitted(r.Header.Revision, now)
		return nil
	}
	own := r.First(self)
	switch {
	case reads.IsEntry(own, e.rev) && layout.MarkIn(own) != 0: // put by an earlier copy, which was not answered
		p.admitted(own.ModRevision, now)
		return nil
	case !reads.IsEntry(own, e.rev) || own.ModRevision != e.rev:
		return errEntryGone
	}
	limit, err := e.q.limit.Ensure(ctx, r.First(limitKey))
	if err != nil || limit.Mod != p.limit.Mod {
		p.limit = limit
		return err
	}
	return p.judgeGone(ctx, r.Header.Revision)
}

// admitted records that the entry holds since its mark was put, at a revision, as the reply to a request says that was
// sent then.
func (p *permit) admitted(at int64, sent time.Time) {
	p.mod = at
	p.w.e.of.saw(at, sent)
	p.w.e.mu.Lock()
	defer p.w.e.mu.Unlock()
	p.w.ahead, p.w.delay = nil, delay{}
}

// judgeGone finds out whether a permit ahead went together with its session key. Then the lock delay begins. A Txn was
// refused at a revision because one of these sessions has ended.
func (p *permit) judgeGone(ctx context.Context, refused int64) error {
	for some := range slices.Chunk(p.account.Gone, txns.MaxOps) {
		var ask txns.Ops
		for _, g := range some {
			ask.Add(reads.Stood(p.w.e.q.host.SessionKey(g.Lease), g.At))
		}
		r, err := p.read(ctx, ask)
		if errors.Is(err, rpctypes.ErrCompacted) {
			p.delayForGone(refused)
			return nil
		}
		if err != nil {
			return err
		}
		if anyAbsent(r, 0, len(some)) {
			p.delayForGone(refused)
			return nil
		}
	}
	p.account.Acquit(p.w.delay.runs())
	return nil
}

// delayForGone begins the lock delay for what has gone. For read see Step.
func (p *permit) delayForGone(read int64) {
	p.account.Delay(p.w.delay.runs())
	p.w.noteAhead(p.w.ahead, p.account.Heard, true)
	p.w.e.say(Step{Action: Judged, Read: read, Delays: true})
}

// anyAbsent reports whether one of the reads of counts has found no key.
func anyAbsent(r txns.Reply, from, end int) bool {
	for i := from; i < end; i++ {
		if r.Range(i).Count == 0 {
			return true
		}
	}
	return false
}
