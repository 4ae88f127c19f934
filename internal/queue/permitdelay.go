package queue

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/internal/reads"
	"github.com/holdfast-go/holdfast/internal/sending"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// delay is the lock delay of a permit, which must pass before it may hold. In the zero delay none has begun.
type delay struct{ until time.Time }

// left is the rest of its time.
func (d delay) left() time.Duration {
	if d.until.IsZero() {
		return 0
	}
	return max(0, time.Until(d.until))
}

// runs reports whether its time has not passed.
func (d delay) runs() bool { return d.left() > 0 }

// isOver reports whether it has begun, and its time has passed.
func (d delay) isOver() bool { return !d.until.IsZero() && !d.runs() }

// noteAhead records the permit that was ahead; nil if there was none. With delays the lock delay begins, or begins
// again.
func (p *permit) noteAhead(ahead *mvccpb.KeyValue, delays bool) {
	e := p.w.e
	e.mu.Lock()
	defer e.mu.Unlock()
	p.w.ahead, e.stage = ahead, max(e.stage, placed)
	switch lockDelay := e.q.shared.lockDelay; {
	case delays && lockDelay > 0:
		p.delay = delay{time.Now().Add(lockDelay)}
	case p.delay.isOver():
		p.delay = delay{}
	}
}

// read sends some reads, and one of the entry itself, as one Txn. If the entry is gone, or was written to, it returns
// ErrEntryGone.
func (p *permit) read(ctx context.Context, ask txns.Ops) (txns.Reply, error) {
	e, began := p.w.e, time.Now()
	self := ask.Add(reads.Meta(e.key))
	r, err := txns.Txn{Then: ask}.Ask(ctx, e.q.host.Sender(), sending.Read)
	if err != nil {
		return r, err
	}
	if own := r.First(self); !reads.IsEntry(own, e.rev) || own.ModRevision != e.modRevision() {
		return r, ErrEntryGone
	}
	e.of.saw(r.Header.Revision, began)
	p.w.tell(ctx)
	return r, nil
}
