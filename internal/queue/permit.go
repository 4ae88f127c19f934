package queue

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/permits"
	"github.com/holdfast-go/holdfast/internal/steps"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// permit is how an entry of a semaphore waits: package permits has the rules. Its goroutine alone uses it.
type permit struct {
	w *wait
	permits.Waiter
	delay    delay
	requeued bool // the session has lost a lease, or an entry was of no use: the permit is held after the lock delay

	mod int64 // mod revision of the entry with its mark; 0: it has none
}

// place records the place of a permit, by what was seen to stand ahead of it when it was put, and at which revision the
// limit was read.
func (p *permit) place(seen permits.Seen, read int64) {
	e := p.w.e
	p.noteAhead(p.Place(seen, e.rev, p.requeued), p.requeued)
	e.say(steps.Step{Action: steps.Judged, Read: read, Delays: p.requeued})
}

// wasPut reads the replies to the reads of the put.
func (p *permit) wasPut(ctx context.Context, r txns.Reply) error {
	e := p.w.e
	e.setCreated(r.Header.Revision)
	seen, err := e.q.limit.Replies(ctx, r, p.Limit.Permits)
	if err != nil {
		return err
	}
	p.w.position = seen.Count
	p.place(seen, e.rev)
	return nil
}

// locate is wait.locate for a permit. If what stood ahead is compacted, the entry is of no use: those behind it know
// whether it holds or puts a mark, and it does not.
func (p *permit) locate(ctx context.Context) error {
	e := p.w.e
	seen, err := e.q.limit.See(ctx, e.rev-1, e.rev, func(ctx context.Context, ask txns.Ops) (txns.Reply, error) {
		return txns.Read(ctx, e.q.host.Sender(), ask...)
	})
	if errors.Is(err, rpctypes.ErrCompacted) {
		return errPlaceUnknown
	}
	if err != nil {
		return err
	}
	p.place(seen, seen.Reply.Header.Revision)
	return nil
}

// unmarked is true in a Txn while the entry stands as it was put.
func (e *entry) unmarked() clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(e.key), "=", e.rev)
}

// putMark puts the entry with a mark.
func (e *entry) putMark(mark int64, held time.Time) clientv3.Op {
	v, _ := layout.DecodeValue([]byte(e.value))
	v.Mark, v.Held = mark, held
	return PutValue(e.key, v.Encode())
}

// markToLeave puts the mark of a first waiter that gives up: the entry behind it goes on from there. One that is far,
// or that does not know up to which revision it has judged, leaves without a mark.
func (p *permit) markToLeave(ctx context.Context) error {
	e := p.w.e
	if p.w.ahead == nil || p.Far || p.mod != 0 {
		return nil
	}
	if p.delay.isOver() {
		e.say(steps.Step{Action: steps.Waited})
	}
	putMark := func(mark int64) clientv3.Op { return e.putMark(mark, time.Time{}) }
	t, ok := p.Leave(e.unmarked(), putMark, p.delay.runs(), e.q.host.SessionKey)
	if !ok {
		return nil
	}
	r, err := e.q.shared.commits.Commit(ctx, t)
	if err == nil {
		p.mod = r.Header.Revision // or the entry is gone, or was changed: it is removed next
	}
	return err
}
