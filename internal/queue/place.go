package queue

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/callback"
	"github.com/holdfast-go/holdfast/internal/layout"
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

// lookAhead reads who holds, and the entries created before rev; with 0 some of all. aheadIn reads the replies.
func (q *Queue) lookAhead(rev int64) []clientv3.Op {
	count := q.ahead(0, 0, clientv3.WithLimit(maxJudged))
	if rev > 0 {
		// The count in a reply does not regard the revision, so the keys are counted.
		count = q.ahead(rev-1, 0, clientv3.WithLimit(view.MaxAhead))
	}
	return []clientv3.Op{q.oldest(), count, q.shared.getEpoch}
}

// lookedAhead is the number of operations of lookAhead.
const lookedAhead = 3

// aheadIn reads the replies to lookAhead(rev), the first of which is response i.
func (q *Queue) aheadIn(resp txns.Reply, i int, rev int64) ahead {
	return q.aheadOf(resp, i, rev, resp.Range(i+2).Kvs)
}

func (q *Queue) aheadOf(resp txns.Reply, i int, rev int64, epoch []*mvccpb.KeyValue) ahead {
	before := resp.Range(i + 1)
	known := int64(len(before.Kvs))
	a := ahead{count: attempts(before.Kvs), epoch: epoch, at: time.Now()}
	if rev == 0 {
		a.count += before.Count - known
	}
	oldest := holderIn(resp.Range(i).Kvs)
	if oldest != nil && (rev == 0 || oldest.CreateRevision < rev) {
		a.holder = oldest
		if q.reader && layout.IsReader(string(oldest.Key)) {
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
		p.Holder = q.at.View(a.holder)
		if q.sem == nil { // a permit has no token
			p.Holder.Token, _ = layout.Token(a.epoch, a.holder.CreateRevision) // 0: not known
		}
	}
	return p
}

// look returns the operations that find out who is ahead, for a request that ends the
// wait of an entry. It returns none for an entry that holds, or that nothing is ahead of.
func (e *entry) look() []clientv3.Op {
	if e.stage != placed || e.ahead == nil {
		return nil
	}
	return e.q.lookAhead(e.rev)
}

// looked reads the replies to look, the first of which is response i.
func (e *entry) looked(r txns.Reply, i int) {
	e.saw(e.q.aheadIn(r, i, e.rev))
}

// sawAhead records what the put of the entry has read: the youngest conflicting entry ahead and how many there are. The
// only one ahead of a writer holds; a writer ahead of a reader may wait for other readers.
func (e *entry) sawAhead(resp *pb.RangeResponse, epoch []*mvccpb.KeyValue) {
	if resp.Count == 0 {
		return
	}
	a := ahead{count: resp.Count, epoch: epoch, at: time.Now()}
	if resp.Count == 1 && !e.q.reader {
		a.holder = txns.First(resp.Kvs)
	}
	e.saw(a)
}

// saw records what is ahead of the entry, for its caller and for those in the line
// behind it.
func (e *entry) saw(a ahead) {
	if e.ticket == nil { // the sweeper's
		return
	}
	s := e.q.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	e.ticket.ahead = a
}

// holds records that the head of the line holds.
func (ln *line) holds(h *Hold) {
	ln.shared.mu.Lock()
	defer ln.shared.mu.Unlock()
	ln.hold = h
}

// place returns the place of a ticket, or with nil that of a caller who does not join
// the line.
func (ln *line) place(t *ticket) view.Place {
	ln.shared.mu.Lock()
	head, hold, inLine := ln.head, ln.hold, ln.aheadLocked(t)
	var a ahead
	if head != nil {
		a = head.ahead
	}
	ln.shared.mu.Unlock()
	if t == head || head == nil {
		return a.place(ln.q)
	}
	p := a.place(ln.q)
	if hold != nil && hold.cause.Load() == nil {
		p = view.Place{Holder: hold.view(), Seen: time.Now()}
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

// view returns what people see of the hold's entry, which another client would read a
// second later.
func (h *Hold) view() view.Entry {
	e := h.entry
	seen := e.q.at.View(&mvccpb.KeyValue{
		Key: []byte(e.key), Value: []byte(e.value), CreateRevision: e.rev, Lease: int64(h.Lease()),
	})
	seen.Token, seen.HeldAt = e.token, layout.Millis(h.since)
	return seen
}

// stale marks a place as old that was not seen when the call ended.
func stale(p view.Place) view.Place {
	p.Stale = p.Known() && time.Since(p.Seen) > 2*giveUpWait
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

// tellWaiting tells the place of an entry that waits.
func (e *entry) tellWaiting(ctx context.Context) {
	if ctx.Err() == nil {
		e.ticket.tell(func() view.Place {
			if e.ahead == nil {
				return e.ticket.named(view.Place{Seen: time.Now()})
			}
			return e.ticket.knownAhead()
		})
	}
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
		p.Name = t.q.at.Name
	}
	return p
}
