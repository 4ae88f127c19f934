package queue

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/callback"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/view"
)

// This file tells people their place in a queue. The algorithm does not use it, and each place costs a read.

// Error is the error of a call without a hold, with its place in the queue.
type Error struct {
	Place view.Place
	Err   error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Without takes the place out of an error, if it's an *Error.
func Without(err error) (view.Place, error) {
	if placed := (*Error)(nil); errors.As(err, &placed) {
		return placed.Place, placed.Err
	}
	return view.Place{}, err
}

// maxCounted is how many keys placeReads reads to count the attempts in a queue. From there on it counts keys, so the
// two entries of a Downgradable count as two.
const maxCounted = 64

// placeReads reads who holds, and the entries created before rev; rev 0: some of all. A semaphore has two such pairs of
// reads: of its permits, and then of its turns.
func (s scope) placeReads(rev int64) []clientv3.Op {
	if s.At.Kind == holdfast.KindSemaphore {
		permits, turns := s.permitsAndTurns()
		return append(permits.placeReads(rev), turns.placeReads(rev)...)
	}
	count := s.ahead(0, clientv3.WithLimit(maxCounted))
	if rev > 0 {
		// The count in a reply does not regard the revision, so the keys are counted.
		count = s.ahead(rev, clientv3.WithLimit(view.MaxAhead))
	}
	return []clientv3.Op{s.oldest(), count}
}

// permitsAndTurns returns the permits got at once, and the turns, of a semaphore, as if each were a queue.
func (s scope) permitsAndTurns() (permits, turns scope) {
	permits, turns = s, s
	permits.At.Kind, turns.At.Kind = "", ""
	turns.At.Entries, _ = s.At.Turns()
	return permits, turns
}

// aheadIn takes the replies to placeReads, from response i on: who holds, and how many attempts are ahead. The holder
// is nil if it is not known.
func (s scope) aheadIn(r requests.Reply, i int, rev int64) (holder *mvccpb.KeyValue, count int64) {
	if s.At.Kind == holdfast.KindSemaphore {
		permits, turns := s.permitsAndTurns()
		holder, count = permits.aheadIn(r, i, rev)
		turn, n := turns.aheadIn(r, i+2, rev)
		if turn != nil && turn.Version > 1 && (holder == nil || turn.CreateRevision < holder.CreateRevision) {
			holder = turn
		}
		return holder, count + n
	}
	before := r.Range(i + 1)
	count = attempts(before.Kvs)
	if rev == 0 {
		count += before.Count - int64(len(before.Kvs))
	}
	oldest := holderIn(r.Range(i).Kvs)
	if oldest == nil || rev != 0 && oldest.CreateRevision >= rev {
		return nil, count
	}
	if s.Reader && layout.IsReader(string(oldest.Key)) {
		count++ // no conflicting entry: it is ahead because a writer waits in between
	}
	return oldest, count
}

// attempts counts the attempts behind some entries of one queue. Those of a Downgradable have two entries.
func attempts(entries []*mvccpb.KeyValue) int64 {
	created := make(map[int64]struct{}, len(entries))
	for _, kv := range entries {
		created[kv.CreateRevision] = struct{}{}
	}
	return int64(len(created))
}

// placeIn returns what people see of the replies to placeReads. epoch is what a read of the fencing epoch has found.
func (s scope) placeIn(r requests.Reply, i int, rev int64, epoch []*mvccpb.KeyValue) view.Place {
	holder, count := s.aheadIn(r, i, rev)
	p := view.Place{Ahead: int(min(count, view.MaxAhead)), Seen: time.Now()}
	if holder != nil {
		p.Holder = s.At.View(holder)
		if s.At.Kind != holdfast.KindSemaphore { // a permit has no token
			p.Holder.Token, _ = layout.Token(epoch, holder.CreateRevision) // 0: not known
		}
	}
	return p
}

// place returns the place of a caller in its line, behind what is ahead of the head's entry.
func (c *caller) place(ctx context.Context) view.Place {
	head, rev, inLine := c.ahead(view.MaxAhead)
	if head == nil {
		return view.Place{}
	}
	counted := inLine
	if inLine > 0 && rev > 0 {
		rev, counted = rev+1, inLine-1 // the head's entry is counted, and may be the holder's
	}
	p := head.readPlace(ctx, rev)
	p.Ahead = min(p.Ahead+counted, view.MaxAhead)
	if !p.Known() && inLine > 0 {
		p.Seen = time.Now() // the line is known
	}
	return p
}

// readPlace asks etcd who holds, and how many entries are ahead of the entry created at rev; with rev 0, how many
// stand. It returns no place if etcd does not answer, or if the session is closed before.
func (c *caller) readPlace(ctx context.Context, rev int64) view.Place {
	q := c.q
	ctx, cancel := lease.WithSession(ctx, q.host.Env)
	defer cancel()
	reads := q.placeReads(rev)
	r, err := requests.ReadAll(ctx, q.host.Sender, append(reads, q.shared.getEpoch)...)
	if err != nil {
		return view.Place{}
	}
	p := q.placeIn(r, 0, rev, r.Range(len(reads)).Kvs)
	if c.inSet {
		p.Name = q.At.Name
	}
	return p
}

// teller calls the OnWait of a caller. The caller's goroutine tells, and no other.
type teller struct {
	calls  callback.Calls
	name   string // of the function; "": it was not called yet
	joined func() // must be called when no call is being made any more: Close waits for it
}

// readPlaceWithin bounds the read of a place for OnWait.
const readPlaceWithin = 5 * time.Second

// tell calls OnWait with a place, unless a call is being made: then OnWait is called again afterwards, with the newest
// place. place is called right before, on the goroutine of OnWait, so it delays no one else. Without OnWait tell does
// nothing.
func (c *caller) tell(place func(ctx context.Context) view.Place) {
	t, fn, host := c.teller, c.request.OnWait, c.q.host
	if fn == nil {
		return
	}
	if t.name == "" {
		t.name, t.joined = callback.Name(fn), host.Joining()
	}
	t.calls.Add(callback.Call{Callback: t.name, Log: host.Logger, Latest: true, Run: func() {
		ctx, cancel := context.WithTimeout(host.Context, readPlaceWithin)
		defer cancel()
		fn(place(ctx))
	}})
}

// end lets no further call begin. Close waits for a call under way.
func (t *teller) end() {
	if t.name == "" {
		return
	}
	t.calls.Stop()
	idle := t.calls.Idle()
	select {
	case <-idle:
		t.joined()
	default:
		go func() { // joined by Close
			<-idle
			t.joined()
		}()
	}
}
