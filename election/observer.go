package election

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/session"
)

// Observer keeps the current leader in memory, so that asking costs no RPC. It
// costs the cluster one watch and one read every third of Options.MaxAge,
// however often it is asked. All methods may be called from any goroutine.
type Observer struct {
	election *Election
	clock    session.Clock
	maxAge   time.Duration

	cancel context.CancelFunc
	first  chan struct{} // closed when something is known
	ended  chan struct{} // closed when observing has ended, with err set
	err    error

	latest atomic.Pointer[knowledge]
}

type knowledge struct {
	leader Leader
	sent   time.Duration
}

// View is what an Observer knows.
type View struct {
	// Leader is who leads; zero: nobody.
	Leader Leader

	// Age is the time since a read was sent that saw Leader lead. Its Value may
	// be newer than that, if the watch has told of it.
	Age time.Duration

	// Trusted says that Age is at most Options.MaxAge and that the observer
	// goes on observing. With it, Leader led no longer ago than Age, and may
	// have been replaced since; without it, Leader is a rumour.
	Trusted bool

	// Err is why the observer has ended: context.Canceled after Close,
	// session.ErrClosed, or what etcd said. nil while it observes.
	Err error
}

var errObserverClosed = fmt.Errorf("the observer was closed: %w", context.Canceled)

// Observer starts an observer and returns it when it knows who leads, or that
// nobody does; ctx bounds that wait only. Close it when it is no longer needed;
// it ends with the session too.
//
// Errors are those of Leader, except that having no leader is none. Nothing is
// left to close then.
func (e *Election) Observer(ctx context.Context) (*Observer, error) {
	if err := e.observable(ctx); err != nil {
		return nil, err
	}
	sess := e.queue.Session()
	o := &Observer{
		election: e, clock: sess.Base().Clock(), maxAge: e.opts.maxAge(),
		first: make(chan struct{}), ended: make(chan struct{}),
	}
	octx, cancel := context.WithCancel(context.Background())
	o.cancel = cancel
	err := session.ErrClosed
	if !sess.Base().Go(func(context.Context) { o.run(octx) }) { // joined by Close, the session's too
		cancel()
		return nil, e.notObserved(err)
	}
	select {
	case <-o.first:
		return o, nil
	case <-o.ended:
		err = o.err
	case <-ctx.Done():
		err = backoff.ContextErr(ctx)
	}
	o.Close()
	return nil, e.notObserved(err)
}

func (e *Election) notObserved(err error) error {
	return fmt.Errorf("observe election %s: %w", session.Quote(e.Name()), err)
}

func (o *Observer) run(ctx context.Context) {
	defer close(o.ended)
	err := o.election.queue.Follow(ctx, o.election.opts.refresh(), func(s queue.Sighting) {
		if o.latest.Swap(&knowledge{leaderOf(s), s.Sent}) == nil {
			close(o.first)
		}
	})
	if o.err = err; errors.Is(err, context.Canceled) {
		o.err = errObserverClosed
	}
}

// Current is what the observer knows, judged now, without an RPC.
func (o *Observer) Current() View {
	known := o.latest.Load() // not nil: Observer has waited for it
	v := View{Leader: known.leader, Age: o.clock() - known.sent}
	select {
	case <-o.ended:
		v.Err = o.err
	default:
		v.Trusted = v.Age <= o.maxAge
	}
	return v
}

// Close ends the observer and waits for its goroutine. Current goes on telling
// what was known last, untrusted. Idempotent.
func (o *Observer) Close() {
	o.cancel()
	<-o.ended
}
