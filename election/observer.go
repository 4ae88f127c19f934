package election

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/queue"
)

// Observer keeps the current leader in memory, so that asking costs no RPC. It
// costs the cluster one watch and one read every third of Options.MaxAge,
// however often it is asked. All methods may be called from any goroutine.
type Observer struct {
	reader   *Reader
	election *Election // nil: this process is no candidate

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
	// holdfast.ErrClosed, holdfast.ErrClientClosed, or what etcd said. nil while
	// it observes.
	Err error
}

var errObserverClosed = fmt.Errorf("the observer was closed: %w", context.Canceled)

// Observer starts an observer: Reader.Observer on the session's client. It ends
// with the session too, with holdfast.ErrClosed. Its LeaderHandler can say that
// this process leads.
func (e *Election) Observer(ctx context.Context) (*Observer, error) {
	r := e.reader()
	if err := r.usable(); err != nil {
		return nil, err
	}
	return r.observer(ctx, e)
}

func (r *Reader) observer(ctx context.Context, e *Election) (*Observer, error) {
	if ctx == nil {
		return nil, &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	o := &Observer{
		reader: r, election: e,
		first: make(chan struct{}), ended: make(chan struct{}),
	}
	octx, cancel := context.WithCancel(context.Background())
	o.cancel = cancel
	if !r.start(func() { o.run(octx) }) { // joined by Close, the session's too
		cancel()
		return nil, r.failed("observe", holdfast.ErrClosed)
	}
	var err error
	select {
	case <-o.first:
		return o, nil
	case <-o.ended:
		err = o.err
	case <-ctx.Done():
		err = backoff.ContextErr(ctx)
	}
	o.Close()
	return nil, r.failed("observe", err)
}

// start runs f on a goroutine. It reports false when that is not possible any
// more.
func (r *Reader) start(f func()) bool {
	if r.run != nil {
		return r.run(f)
	}
	go f()
	return true
}

func (o *Observer) run(ctx context.Context) {
	defer close(o.ended)
	err := o.reader.front.Follow(ctx, o.reader.refresh(), func(f queue.Front) {
		if o.latest.Swap(&knowledge{leaderOf(f), f.Sent}) == nil {
			close(o.first)
		}
	})
	if o.err = err; errors.Is(err, context.Canceled) && ctx.Err() != nil {
		o.err = errObserverClosed
	}
}

// Current is what the observer knows, judged now, without an RPC.
func (o *Observer) Current() View {
	known := o.latest.Load() // not nil: Observer has waited for it
	v := View{Leader: known.leader, Age: o.reader.front.Clock()() - known.sent}
	select {
	case <-o.ended:
		v.Err = o.err
	default:
		v.Trusted = v.Age <= o.reader.maxAge
	}
	return v
}

// Close ends the observer and waits for its goroutine. Current goes on telling
// what was known last, untrusted. Idempotent.
func (o *Observer) Close() {
	o.cancel()
	<-o.ended
}
