package queue

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/awaiting"
	"github.com/holdfast-go/holdfast/internal/calls"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/reads"
	"github.com/holdfast-go/holdfast/internal/steps"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// await waits until the entry holds, or returns a *holdfast.LimitError if its weight is above a limit that was
// lowered.
func (p *permit) await(ctx context.Context) error {
	for p.w.ahead != nil {
		var err error
		switch {
		case p.TooHeavy():
			return p.w.e.q.limit.Err(p.Limit.Permits, p.Weight)
		case p.Far:
			err = p.awaitMark(ctx)
		case !p.Fits():
			err = p.awaitRoom(ctx)
		default:
			if left := p.delay.left(); left > 0 {
				p.w.tell(ctx)
				if !calls.Sleep(ctx, left) {
					return backoff.ContextErr(ctx)
				}
			}
			if p.delay.isOver() {
				p.w.e.say(steps.Step{Action: steps.Waited})
			}
			err = p.w.e.retry(ctx, p.admit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitMark waits until the entry ahead of a far one has a mark, or is gone.
func (p *permit) awaitMark(ctx context.Context) error {
	ahead := p.w.ahead
	return awaiting.Change{
		Host: p.w.e.q.host, Streams: &p.w.e.q.shared.streams,
		Key:  string(ahead.Key),
		Over: func() bool { return p.w.ahead != ahead || !p.Far },
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
	p.followMark(now, r.Header.Revision)
	return nil
}

// hearMark handles what the watch of the entry ahead tells.
func (p *permit) hearMark(ctx context.Context, events []*clientv3.Event) error {
	for _, event := range events {
		switch ahead := p.w.ahead; {
		case reads.IsEnd(event, ahead.Key, ahead.CreateRevision):
			return p.judge(ctx, event.Kv.ModRevision)
		case reads.IsEntry(event.Kv, ahead.CreateRevision):
			if p.followMark(event.Kv, event.Kv.ModRevision); !p.Far {
				return nil
			}
		}
	}
	return nil
}

// followMark makes the entry the first waiter if the one ahead has a mark, as was read, or told, at a revision.
func (p *permit) followMark(ahead *mvccpb.KeyValue, read int64) {
	if mark := layout.MarkIn(ahead); mark != 0 {
		p.Lead(mark, false)
		p.w.e.say(steps.Step{Action: steps.Judged, Read: read})
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
	delays := p.AheadWent(seen, at)
	p.noteAhead(cmp.Or(seen.Youngest, p.w.ahead), delays)
	p.w.e.say(steps.Step{Action: steps.Judged, Read: seen.Reply.Header.Revision, Delays: delays})
	return nil
}

// awaitRoom waits until the weight of the first waiter fits into the limit.
func (p *permit) awaitRoom(ctx context.Context) error {
	at := p.w.e.q.At
	return awaiting.Change{
		Host: p.w.e.q.host, Streams: &p.w.e.q.shared.streams,
		Key:  at.Entries,
		Opts: []clientv3.OpOption{clientv3.WithRange(at.LimitKey() + "\x00")}, // the entries, and the limit
		Over: func() bool { return p.Fits() || p.TooHeavy() },
		Look: p.lookForRoom,
		Hear: p.hearRoom,
	}.Await(ctx)
}

// lookForRoom reads which permits stand ahead of the first waiter. If it cannot be known what has gone until now, the
// lock delay begins now.
func (p *permit) lookForRoom(ctx context.Context) error {
	delays, err := p.LookForRoom(ctx, p.read)
	if delays {
		p.noteAhead(p.w.ahead, true)
		p.w.e.say(steps.Step{Action: steps.Judged, Read: p.Heard, Delays: true, Unfound: true})
	}
	return err
}

// hearRoom handles what the watch of the permits and of the limit tells.
func (p *permit) hearRoom(ctx context.Context, events []*clientv3.Event) error {
	again, err := p.HearRoom(ctx, events)
	if again {
		return p.lookForRoom(ctx)
	}
	return err
}

// admit has the first waiter hold. It knows that its weight fits, and nothing joins ahead of it, so one Txn compares
// the rest: that the limit is the one it knows, and that the sessions of the permits that have gone exist. It puts the
// mark.
func (p *permit) admit(ctx context.Context) error {
	e := p.w.e
	stand, few := p.SessionsStand(e.q.host.SessionKey)
	if !few {
		p.delayForGone(0)
		return nil
	}
	now := time.Now()
	var otherwise txns.Ops
	self, limitKey := otherwise.Add(clientv3.OpGet(e.key)), otherwise.Add(clientv3.OpGet(e.q.At.LimitKey()))
	r, err := e.q.shared.commits.Commit(ctx, txns.Txn{
		If: append([]clientv3.Cmp{
			e.unmarked(), clientv3.Compare(clientv3.ModRevision(e.q.At.LimitKey()), "=", p.Limit.Mod),
		}, stand...),
		Then: []clientv3.Op{e.putMark(p.Heard, now)},
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
		return ErrEntryGone
	}
	limit, err := e.q.limit.Ensure(ctx, r.First(limitKey))
	if err != nil || limit.Mod != p.Limit.Mod {
		p.Limit = limit
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
	p.w.ahead, p.delay = nil, delay{}
}

// judgeGone finds out whether a permit ahead went together with its session key. Then the lock delay begins. A Txn was
// refused at a revision because one of these sessions has ended.
func (p *permit) judgeGone(ctx context.Context, refused int64) error {
	switch ended, err := p.AnyEnded(ctx, p.w.e.q.host.SessionKey, p.read); {
	case err != nil:
		return err
	case ended:
		p.delayForGone(refused)
	default:
		p.Acquit(p.delay.runs())
	}
	return nil
}

// delayForGone begins the lock delay for what has gone. read is that of steps.Step.
func (p *permit) delayForGone(read int64) {
	p.Delay(p.delay.runs())
	p.noteAhead(p.w.ahead, true)
	p.w.e.say(steps.Step{Action: steps.Judged, Read: read, Delays: true})
}
