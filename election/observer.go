package election

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/front"
)

// Observer keeps the current leader in memory, with one watch and a read each third of MaxAge. It may be used by any
// number of goroutines.
type Observer struct {
	reader   *Reader
	election *Election // nil: an observer of a Reader

	cancel context.CancelFunc
	first  chan struct{} // closed after the first read
	ended  chan struct{} // closed when run has returned and set err
	err    error

	latest atomic.Pointer[observation]
}

type observation struct {
	leader Leader
	sent   time.Duration // when the read that found the leader was sent
}

// View is what an Observer knows.
type View struct {
	// Leader is the leader; the zero Leader if no candidate leads.
	Leader Leader

	// Age is the time since the read that found Leader leading was sent. The watch may have updated its Value since.
	Age time.Duration

	// Trusted means that Age is at most MaxAge and the observer has not ended. Leader may have been replaced since.
	Trusted bool

	// Err is why the observer has ended, nil while it runs: context.Canceled after Close, holdfast.ErrClosed,
	// holdfast.ErrClientClosed, or etcd's error.
	Err error
}

var errObserverClosed = fmt.Errorf("the observer was closed: %w", context.Canceled)

// Observer is Reader.Observer on the session's client. It ends with holdfast.ErrClosed when the session is closed.
func (e *Election) Observer(ctx context.Context) (*Observer, error) {
	return newObserver(ctx, e.reader(), e)
}

func newObserver(ctx context.Context, r *Reader, e *Election) (*Observer, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	if ctx == nil {
		return nil, &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	o := &Observer{reader: r, election: e, first: make(chan struct{}), ended: make(chan struct{})}
	octx, cancel := context.WithCancel(context.Background())
	o.cancel = cancel
	run := func() { o.run(octx) } // joined by Close, and by the session's
	if r.spawn == nil {
		go run()
	} else if !r.spawn(run) {
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

func (o *Observer) run(ctx context.Context) {
	defer close(o.ended)
	err := o.reader.front.Follow(ctx, o.reader.refresh(), func(f front.Front) {
		if o.latest.Swap(&observation{leaderOf(f), f.Sent}) == nil {
			close(o.first)
		}
	})
	if o.err = err; errors.Is(err, context.Canceled) && ctx.Err() != nil {
		o.err = errObserverClosed
	}
}

// Current returns what the observer knows now, without an RPC.
func (o *Observer) Current() View {
	latest := o.latest.Load() // not nil: newObserver waits for the first
	v := View{Leader: latest.leader, Age: o.reader.front.Clock()() - latest.sent}
	select {
	case <-o.ended:
		v.Err = o.err
	default:
		v.Trusted = v.Age <= o.reader.maxAge
	}
	return v
}

// Close ends the observer and waits for its goroutine. Current then returns the last known leader, untrusted.
func (o *Observer) Close() {
	o.cancel()
	<-o.ended
}
