package queue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/ahead"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/view"
)

// tellOwnHolderAfter is how long a goroutine waits for another goroutine of its session before the log says so.
const tellOwnHolderAfter = 5 * time.Second

// ticket is one caller's place in a line in memory.
type ticket struct {
	Ticket[*ticket]
	q       *Queue // as this caller named it
	request Request
	inSet   bool     // of a Set of several queues
	attempt *attempt // set before the turn: whose entry the previous head has put for this caller; or nil

	// What those in the line behind it are told; all protected by shared.mu.
	rev   int64 // create revision of its entry; 0: not known
	shown Shown // what others see of its entry; nil until it holds
	told  bool  // the log says that another goroutine of the session has waited long for it

	teller    *ahead.Teller // of the caller's place; a Set's tickets share it
	ownTeller ahead.Teller
}

// newTicket returns the ticket of a caller, which join gives a place.
func newTicket(q *Queue, r Request) *ticket {
	t := &ticket{q: q, request: r}
	t.Caller, t.Alone, t.teller = t, q.Reader || q.limit != 0, &t.ownTeller
	return t
}

// awaitTurn waits until t is the head, and tells its caller the place meanwhile. After an error the caller cancels t.
func (t *ticket) awaitTurn(ctx context.Context) error {
	t.tell(t.place)
	ownHolder := time.AfterFunc(tellOwnHolderAfter, t.tellOwnHolder)
	defer ownHolder.Stop()
	select {
	case <-t.Turn():
		return nil
	case <-ctx.Done():
		err := fmt.Errorf("%w; queued behind a goroutine of this session, perhaps this one", retry.ContextErr(ctx))
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease.GiveUpWait)
		defer cancel()
		return &ahead.Error{Place: t.place(patience), Err: err}
	case <-t.q.host.Context().Done():
		return holdfast.ErrClosed
	}
}

// tellOwnHolder logs that t waits for a goroutine of its own session that holds, once for each hold. A goroutine that
// locks a name twice waits for itself, and nothing else says so.
func (t *ticket) tellOwnHolder() {
	head, _, exists := t.Line(1)
	if !exists || head == t {
		return
	}
	t.q.shared.mu.Lock()
	shown, told := head.shown, head.told
	head.told = told || shown != nil
	t.q.shared.mu.Unlock()
	if shown == nil || told {
		return
	}
	if _, holds := shown.Shown(); holds {
		t.q.host.Logger().Info("holdfast: a goroutine waits for a lock that its own session holds, perhaps this goroutine; "+
			"one that locks a name twice waits for itself: see locker.Options.Reentrant",
			"queue", string(t.q.At.Kind), "name", t.q.At.Name, "waited", tellOwnHolderAfter)
	}
}

// occupancy returns nil if no goroutine of this session is in the line of q; ErrUnconfirmed if all have returned and
// only the removal of an entry is unconfirmed; otherwise ErrOccupied, with the place.
func (q *Queue) occupancy(ctx context.Context) error {
	head, length, leftOver, exists := q.shared.lines.Shared(q.At.Entries)
	switch {
	case !exists:
		return nil
	case leftOver:
		return ErrUnconfirmed
	default:
		return &ahead.Error{Place: head.placeBehind(ctx, length), Err: ErrOccupied}
	}
}

// hasOthers reports whether a goroutine of this session excludes a caller of q, whatever line it is in.
func (q *Queue) hasOthers() bool {
	excludes := func(head *ticket) bool { return !q.Reader || !head.q.Reader }
	return slices.ContainsFunc(q.shared.lines.Heads(q.At.Entries), excludes)
}

// place returns the place of a ticket in its line. It asks etcd, unless a goroutine of this session holds.
func (t *ticket) place(ctx context.Context) view.Place {
	head, inLine, exists := t.Line(view.MaxAhead)
	if !exists {
		return view.Place{}
	}
	return head.placeBehind(ctx, inLine)
}

// placeBehind returns the place of a caller with inLine others ahead in the line. t is the head of that line.
func (t *ticket) placeBehind(ctx context.Context, inLine int) view.Place {
	t.q.shared.mu.Lock()
	rev, shown := t.rev, t.shown
	t.q.shared.mu.Unlock()
	var p view.Place
	holds := false
	if shown != nil && inLine > 0 {
		p.Holder, holds = shown.Shown()
	}
	if !holds {
		p = t.readPlace(ctx, rev)
	}
	p.Ahead = min(p.Ahead+inLine, view.MaxAhead)
	if holds || !p.Known() && inLine > 0 {
		p.Seen = time.Now() // the line is known
	}
	return p
}

// readPlace asks etcd who holds, and how many entries are ahead of the entry created at rev; with rev 0, how many
// stand. It returns no place if etcd does not answer, or if the session is closed before.
func (t *ticket) readPlace(ctx context.Context, rev int64) view.Place {
	q := t.q
	ctx, cancel := lease.WithSession(ctx, q.host)
	defer cancel()
	look := ahead.Look(q.Scope, rev)
	r, err := requests.ReadAll(ctx, q.host.Sender(), append(look, q.shared.getEpoch)...)
	if err != nil {
		return view.Place{}
	}
	p := ahead.Read(q.Scope, r, 0, rev, r.Range(len(look)).Kvs).Place(q.Scope)
	if t.inSet {
		p.Name = q.At.Name
	}
	return p
}

// tell tells the caller of a ticket its place.
func (t *ticket) tell(place func(ctx context.Context) view.Place) {
	t.teller.Tell(t.q.host, t.request.OnWait, place)
}

// tell tells the caller the place of an entry that waits.
func (w *wait) tell(ctx context.Context) {
	t := w.e.ticket
	if t == nil || t.request.OnWait == nil || ctx.Err() != nil {
		return
	}
	if w.ahead != nil || w.permit != nil {
		t.tell(t.place)
		return
	}
	first := view.Place{Seen: time.Now()}
	if t.inSet {
		first.Name = t.q.At.Name
	}
	t.tell(func(context.Context) view.Place { return first })
}
