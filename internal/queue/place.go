package queue

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/callback"
	"github.com/holdfast-go/holdfast/internal/calls"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/reads"
	"github.com/holdfast-go/holdfast/internal/txns"
	"github.com/holdfast-go/holdfast/view"
)

// What is known of a caller's place is for people. The algorithm does not use it, and it
// costs no request: requests that are sent anyway bring it along.

// PlacedError is the error of a call that got no hold, with its place in the queue.
type PlacedError struct {
	Place view.Place
	Err   error
}

func (e *PlacedError) Error() string { return e.Err.Error() }
func (e *PlacedError) Unwrap() error { return e.Err }

// WithoutPlace takes the place out of an error of Acquire or TryAcquire.
func WithoutPlace(err error) (view.Place, error) {
	if placed := (*PlacedError)(nil); errors.As(err, &placed) {
		return placed.Place, placed.Err
	}
	return view.Place{}, err
}

// ahead is what a reply of etcd says of the entries ahead.
type ahead struct {
	holder *mvccpb.KeyValue // the oldest, with its value; nil if that is not known
	epoch  []*mvccpb.KeyValue
	count  int64
	at     time.Time // zero: nothing is known
}

// lookAhead reads who holds, and the entries created before rev; with 0 some of all; and the epoch.
func (q *Queue) lookAhead(rev int64) []clientv3.Op {
	count := q.Ahead(0, 0, clientv3.WithLimit(maxLeftOver))
	if rev > 0 {
		// The count in a reply does not regard the revision, so the keys are counted.
		count = q.Ahead(rev-1, 0, clientv3.WithLimit(view.MaxAhead))
	}
	return []clientv3.Op{q.Oldest(), count, q.shared.getEpoch}
}

// aheadIn reads the first two replies to lookAhead(rev), of which one is response i.
func (q *Queue) aheadIn(resp txns.Reply, i int, rev int64, epoch []*mvccpb.KeyValue) ahead {
	before := resp.Range(i + 1)
	known := int64(len(before.Kvs))
	a := ahead{count: attempts(before.Kvs), epoch: epoch, at: time.Now()}
	if rev == 0 {
		a.count += before.Count - known
	}
	oldest := reads.Holder(resp.Range(i).Kvs)
	if oldest != nil && (rev == 0 || oldest.CreateRevision < rev) {
		a.holder = oldest
		if q.Reader && layout.IsReader(string(oldest.Key)) {
			a.count++ // no conflicting entry: it is ahead because a writer waits in between
		}
	}
	return a
}

// attempts counts the attempts that some entries of one queue belong to. Those of a Downgradable have two.
func attempts(entries []*mvccpb.KeyValue) int64 {
	created := make(map[int64]struct{}, len(entries))
	for _, kv := range entries {
		created[kv.CreateRevision] = struct{}{}
	}
	return int64(len(created))
}

// place returns what people see of it.
func (a ahead) place(q *Queue) view.Place {
	p := view.Place{Ahead: int(min(a.count, view.MaxAhead)), Seen: a.at}
	if a.holder != nil {
		p.Holder = q.At.View(a.holder)
		if q.limit == nil { // a permit has no token
			p.Holder.Token, _ = layout.Token(a.epoch, a.holder.CreateRevision) // 0: not known
		}
	}
	return p
}

// sight is what a request that is sent anyway brings along of who is ahead of an entry. The zero sight is of a request
// that brings nothing.
type sight struct {
	t     *ticket
	first int   // of the replies
	rev   int64 // of the entry; 0: all that stand are ahead
}

// look adds to a request that ends the wait of an entry what finds out who is ahead. It adds nothing for an entry that
// holds, that nothing is ahead of, or that the sweeper has found.
func (w *wait) look(ask *txns.Ops) sight {
	if w.e.stage != placed || w.ahead == nil {
		return sight{}
	}
	return w.e.ticket.look(ask, w.e.rev)
}

// lookToTell adds to a read of an entry that waits what its caller wants to be told.
func (w *wait) lookToTell(ask *txns.Ops) sight {
	if t := w.e.ticket; t == nil || t.request.OnWait == nil {
		return sight{}
	}
	return w.e.ticket.look(ask, w.e.rev)
}

// look adds what finds out who is ahead of an entry that was created at rev; 0: who is in the queue.
func (t *ticket) look(ask *txns.Ops, rev int64) sight {
	if t == nil {
		return sight{}
	}
	return sight{t, ask.Add(t.q.lookAhead(rev)...), rev}
}

// saw reads the replies.
func (s sight) saw(r txns.Reply) {
	if s.t != nil {
		s.t.saw(s.t.q.aheadIn(r, s.first, s.rev, r.Range(s.first+2).Kvs))
	}
}

// sawAhead records what the put of the entry has read: the youngest conflicting entry ahead and how many there are. The
// only one ahead of a writer holds; a writer ahead of a reader may wait for other readers.
func (t *ticket) sawAhead(resp *pb.RangeResponse, epoch []*mvccpb.KeyValue) {
	if resp.Count == 0 {
		return
	}
	a := ahead{count: resp.Count, epoch: epoch, at: time.Now()}
	if resp.Count == 1 && !t.q.Reader {
		a.holder = txns.First(resp.Kvs)
	}
	t.saw(a)
}

// saw records what is ahead of the entry, for its caller and for those in the line
// behind it.
func (t *ticket) saw(a ahead) {
	s := t.q.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	t.ahead = a
}

// place returns the place of a ticket, or with nil that of a caller who does not join
// the line.
func (ln *line) place(t *ticket) view.Place {
	ln.shared.mu.Lock()
	head, shown, inLine := ln.head, ln.shown, ln.aheadLocked(t)
	var a ahead
	if head != nil {
		a = head.ahead
	}
	ln.shared.mu.Unlock()
	if t == head || head == nil {
		return a.place(ln.q)
	}
	p := a.place(ln.q)
	if shown != nil {
		if holder, ok := shown.Shown(); ok {
			p = view.Place{Holder: holder, Seen: time.Now()}
		}
	}
	p.Ahead = min(p.Ahead+inLine, view.MaxAhead)
	if !p.Known() {
		p.Seen = time.Now() // the line is known
	}
	return p
}

// aheadLocked counts the tickets ahead of t in the line; with nil, all. It does not go through more than view.MaxAhead.
func (ln *line) aheadLocked(t *ticket) int {
	switch {
	case t == nil:
		return 1 + ln.waiting.Len()
	case t == ln.head:
		return 0
	}
	n := 1
	for el := t.place.Prev(); el != nil && n < view.MaxAhead; el = el.Prev() {
		n++
	}
	return n
}

// stale marks a place as old that was not seen when the call ended.
func stale(p view.Place) view.Place {
	p.Stale = p.Known() && time.Since(p.Seen) > 2*calls.GiveUpWait
	return p
}

// waits are the calls of a caller's OnWait.
type waits struct {
	calls  callback.Queue
	name   string // of the function; "": it was not called yet
	joined func() // must be called when no call is being made any more: Close waits for it
}

// tell calls OnWait with the ticket's place, unless a call is being made: then it is
// called again afterwards, with the newest place. The caller's goroutine tells, and no
// other.
func (t *ticket) tell(p func() view.Place) {
	fn := t.request.OnWait
	if fn == nil {
		return
	}
	w := t.waits
	if w.name == "" {
		w.name, w.joined = callback.Name(fn), t.q.host.Joining()
	}
	now := p()
	w.calls.Add(callback.Call{Callback: w.name, Log: t.q.host.Logger(), Latest: true, Run: func() { fn(now) }})
}

// endWaits has no call begin any more. Close waits for the one that is being made.
func (t *ticket) endWaits() {
	w := t.waits
	if w.name == "" {
		return
	}
	w.calls.Stop()
	idle := w.calls.Idle()
	select {
	case <-idle:
		w.joined()
	default:
		go func() { // joined by Close
			<-idle
			w.joined()
		}()
	}
}

// tell tells the caller the place of an entry that waits.
func (w *wait) tell(ctx context.Context) {
	t := w.e.ticket
	if t == nil || ctx.Err() != nil {
		return
	}
	t.tell(func() view.Place {
		if w.ahead == nil {
			return t.named(view.Place{Seen: time.Now()})
		}
		return t.knownAhead()
	})
}

// knownAhead returns what is known of the entries ahead of a caller who is the head.
func (t *ticket) knownAhead() view.Place {
	t.q.shared.mu.Lock()
	a := t.ahead
	t.q.shared.mu.Unlock()
	return t.named(a.place(t.q))
}

// named adds to a place of which queue it is, if the caller waits in several.
func (t *ticket) named(p view.Place) view.Place {
	if t.inSet && p.Known() {
		p.Name = t.q.At.Name
	}
	return p
}
