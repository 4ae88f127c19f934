package hold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/telemetry"
	"github.com/holdfast-go/holdfast/view"
)

// Request is what a caller wants of a queue, and of the hold.
type Request struct {
	queue.Request

	MinHold time.Duration // the name stays taken for so long, also after a release; for one queue
	MaxHold time.Duration // the hold is lost after it; 0: never
	Auditor audit.Auditor // is told of the hold; nil: the session's logger is

	attached time.Time // of a hold that goes on after a Detach: since when the name is held; otherwise zero
}

// Hold is one acquisition, from its grant to its end. A Lock or a Term is made of it. It ends once, in stop. An
// acquisition of several names has a Hold for each: see queue.Set.
type Hold struct {
	heldEntry
	request   Request
	telemetry *telemetry.Acquisition // nil for all holds of a Set but the first
	removal   removal

	*life
	ownLife life     // of a hold in no Set, and of a Set's first
	alone   [1]*Hold // room for ownLife.holds
}

// Acquire queues in one queue, waits, and returns the hold: see queue.Set.Acquire.
func Acquire(ctx context.Context, q *queue.Queue, r Request) (*Hold, error) {
	grants, err := queue.Set{q}.Acquire(ctx, r.Request)
	if err != nil {
		return nil, err
	}
	return Begin(grants, r)[0], nil
}

// Failed says why nothing was acquired in q, and what is known of its place: what Acquire returned, or a reason not to
// call it.
func Failed(q *queue.Queue, name string, waited time.Duration, err error) *view.AcquireError {
	e := &view.AcquireError{Kind: q.Kind(), Name: name, Waited: waited}
	e.Place, e.Err = queue.Without(err)
	if host := q.Host(); host != nil {
		e.Lease, e.State = host.Lease().ID(), host.State()
	}
	return e
}

// Begin begins the holds of what was granted to one call, in their order. They have one life: from now on they end with
// their lease, and after MaxHold.
func Begin(grants []*queue.Grant, r Request) []*Hold {
	first := newHold(grants[0], r, nil)
	for _, g := range grants[1:] {
		first.holds = append(first.holds, newHold(g, r, first.life))
	}
	for _, h := range first.holds {
		if r.MinHold > 0 {
			h.grant.TakeFor(r.MinHold)
		}
		h.telemetry.Held()
		h.removal.joined = h.host.Joining()
	}
	audited := first.audited()
	if audited {
		first.begun.Add(1)
	}
	first.poll.add(first.holds) // after all that their end needs: their lease may be lost by now
	if r.MaxHold > 0 {
		first.limitTime()
	}
	if audited { // last: no poll of their entries waits for an auditor
		defer first.begun.Done()
		begin := audit.Record{Event: audit.Granted, At: first.since}
		if !r.attached.IsZero() {
			begin = audit.Record{Event: audit.Attached}
		}
		for _, h := range first.holds {
			h.tell(begin)
		}
	}
	return first.holds
}

// newHold makes the hold of a grant. of is the life of its Set; nil: the hold begins a life of its own.
func newHold(g *queue.Grant, r Request, of *life) *Hold {
	h := &Hold{request: r, telemetry: g.Telemetry, life: of}
	h.grant, h.host = g, g.Host
	if mod := g.Modified; mod != g.Created { // the entry was put again: by an Attach, or as the mark of a permit
		h.modified.Store(mod)
	}
	h.removal.hold, h.removal.done = h, make(chan struct{})
	if of != nil {
		return h
	}
	h.life = &h.ownLife
	h.holds, h.since, h.poll = append(h.alone[:0], h), time.Now(), pollerOf(h.host) // a Set needs more room
	if !r.attached.IsZero() {
		h.since = r.attached
	}
	return h
}

// audited reports whether a grant and a release are recorded: by an auditor, or in the log of a session that logs at
// Debug. Either may take time.
func (h *Hold) audited() bool {
	return h.request.Auditor != nil || h.host.Logger.Enabled(context.Background(), slog.LevelDebug)
}

// tell completes a record of the hold, and tells the auditor.
func (h *Hold) tell(r audit.Record) {
	r.Kind, r.Name, r.Key = h.Queue().Kind(), h.Queue().Name(), h.Key()
	r.Lease, r.Token, r.Holder = h.Lease(), h.Token(), h.holder()
	a := h.request.Auditor
	if a == nil {
		a = audit.Log(h.host.Logger)
	}
	audit.Tell(context.Background(), a, r)
}

// String says what is held, such as
//
//	lock "billing/job-7", token 120, lease 694d
func (h *Hold) String() string {
	if h == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s, %slease %x", h.Queue(), h.tokenText(), int64(h.Lease()))
}

// Together returns the holds with the life of h, itself among them, in the order of the set.
func (h *Hold) Together() []*Hold { return h.holds }

// Holding is true in a Txn as long as all entries of the hold and of its Set stand, its own first. They may outlive the
// hold: see fencing.Hold.
func (h *Hold) Holding() []clientv3.Cmp {
	cmps := []clientv3.Cmp{h.grant.Holding()}
	for _, each := range h.holds {
		if each != h {
			cmps = append(cmps, each.grant.Holding())
		}
	}
	return cmps
}

// Check judges now: nil, holdfast.ErrSuspended, a *holdfast.LostError, or holdfast.ErrReleased. It allocates nothing
// while held.
func (h *Hold) Check() error {
	if cause := h.cause.Load(); cause != nil {
		return *cause
	}
	err := h.grant.Lease.Check()
	if err == nil || errors.Is(err, holdfast.ErrSuspended) {
		return err
	}
	if lost := (*holdfast.LostError)(nil); errors.As(err, &lost) {
		h.endAndRelease(h.named(lost))
	}
	return *h.cause.Load() // the first cause, perhaps of another goroutine
}

// Live reports whether the hold has not ended: it is held, or suspended.
func (h *Hold) Live() bool {
	err := h.Check()
	return err == nil || errors.Is(err, holdfast.ErrSuspended)
}

// Context returns a child of ctx. It ends with the hold and, if strict, with a suspension of its session. The cause is
// Check's answer. If that is so already, the context is done when Context returns.
func (h *Hold) Context(ctx context.Context, strict bool) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	err := h.Check() // ends the hold if its lease is lost
	if !h.addContext(&cancel) {
		cancel(h.Check())
		return ctx, func() {}
	}
	stopStrict := func() bool { return true }
	if strict && errors.Is(err, holdfast.ErrSuspended) {
		// Check judges by the clock. The session ends its connected context a moment later, when its watchdog wakes.
		cancel(err)
	} else if strict {
		connected := h.grant.Lease.ConnectedContext()
		stopStrict = context.AfterFunc(connected, func() { cancel(context.Cause(connected)) })
	}
	return ctx, func() {
		stopStrict()
		h.removeContext(&cancel)
		cancel(nil)
	}
}

// life is the time from the grant to the end. The holds of a Set have one life: they end together, with one cause.
type life struct {
	holds []*Hold
	poll  *poller // of the session
	since time.Time
	begun sync.WaitGroup // until the auditor has been told of the grants

	stopped sync.Once             // runs the body of stop
	cause   atomic.Pointer[error] // of the end; nil while held
	taken   atomic.Bool           // the entries have outlived the hold, and are being removed
	until   time.Time             // the end; written by stop

	mu       sync.Mutex                            // protects what follows
	done     signal                                // the hold has ended: its contexts are canceled
	contexts map[*context.CancelCauseFunc]struct{} // of the contexts of Context
	limit    *time.Timer                           // of MaxHold
	forced   signal                                // an administrator takes the kept entry away
	released signal                                // Release has been called
}

// limitTime has the life end after MaxHold.
func (l *life) limitTime() {
	held := time.Since(l.since) // after an Attach the hold is older than this life
	l.mu.Lock()                 // a timer may fire before it is assigned
	defer l.mu.Unlock()
	if l.done.given { // its lease was lost as it began, perhaps
		return
	}
	l.limit = time.AfterFunc(l.holds[0].request.MaxHold-held, func() {
		l.endAndRelease(l.holds[0].lost(holdfast.CauseMaxHold))
	})
}

// Done returns a channel that is closed when the hold has ended.
func (l *life) Done() <-chan struct{} { return l.done.channel(&l.mu) }

// addContext has stop call cancel. It reports false if the hold has ended.
func (l *life) addContext(cancel *context.CancelCauseFunc) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done.given {
		return false
	}
	if l.contexts == nil {
		l.contexts = make(map[*context.CancelCauseFunc]struct{})
	}
	l.contexts[cancel] = struct{}{}
	return true
}

func (l *life) removeContext(cancel *context.CancelCauseFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.contexts, cancel)
}

// stop ends the holds with their cause, once. It reports true to the call that has ended them: this call must remove
// the entries.
func (l *life) stop(cause error) (ended bool) {
	// When stop returns, to any of its callers, every context of the holds is done. So no entry is ever removed while work
	// still runs that believes it holds:
	//
	//	goroutine 1: stop cancels the contexts          goroutine 2: stop waits for goroutine 1
	//	goroutine 1: removes the entry                  goroutine 2: goes on
	l.stopped.Do(func() {
		ended = true
		l.until = time.Now()
		for _, each := range l.holds {
			// MinHold is for a hold ended by its program. After a loss the name is free as soon as the entry goes.
			if !errors.Is(cause, holdfast.ErrReleased) && !errors.Is(cause, holdfast.ErrClosed) {
				each.grant.TakeFor(0)
			} else if !each.request.attached.IsZero() {
				each.grant.TakeFor(each.request.MinHold) // counts from the release
			}
		}
		l.cause.Store(&cause) // before the contexts: who is woken asks Check
		l.done.give(&l.mu)    // no context is added any more
		for cancel := range l.takeContexts() {
			(*cancel)(cause)
		}
		if !keepsEntry(cause) { // the poller still asks about a kept entry: an administrator may take it away
			l.poll.roster.remove(l.holds)
		}
	})
	return ended
}

// takeContexts returns the contexts to cancel.
func (l *life) takeContexts() map[*context.CancelCauseFunc]struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit != nil {
		l.limit.Stop()
	}
	contexts := l.contexts
	l.contexts = nil
	return contexts
}

// signal is a channel, made with the first wait for it. The mutex of its life protects it.
type signal struct {
	given bool
	c     chan struct{} // nil: nothing has waited
}

// channel returns the channel, for give to close.
func (s *signal) channel(mu *sync.Mutex) <-chan struct{} {
	mu.Lock()
	defer mu.Unlock()
	if s.c == nil {
		s.c = make(chan struct{})
		if s.given {
			close(s.c)
		}
	}
	return s.c
}

// give closes the channel, once.
func (s *signal) give(mu *sync.Mutex) {
	mu.Lock()
	defer mu.Unlock()
	if !s.given && s.c != nil {
		close(s.c)
	}
	s.given = true
}
