package watching

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/view"
)

// Dated is a value, and when the read that found it was sent, by the reader's clock.
type Dated[V any] struct {
	Value V
	Sent  time.Duration
}

// Follow calls tell with what etcd says of something, then after each change and each regular read, until ctx ends or
// following fails.
type Follow[V any] func(ctx context.Context, tell func(Dated[V])) error

var errClosed = fmt.Errorf("the observer was closed: %w", context.Canceled)

// memory keeps the latest value of a Follow.
type memory[V any] struct {
	cancel context.CancelFunc
	news   chan struct{} // full when something was told since the last look
	ended  chan struct{} // closed when follow has returned and err is set
	err    error
	latest atomic.Pointer[Dated[V]]
}

// remember fills a memory until close.
func remember[V any](ctx context.Context, follow Follow[V]) *memory[V] {
	ctx, cancel := context.WithCancel(ctx)
	m := &memory[V]{cancel: cancel, news: make(chan struct{}, 1), ended: make(chan struct{})}
	go func() { // joined by close
		defer close(m.ended)
		m.err = follow(ctx, func(now Dated[V]) {
			m.latest.Store(&now)
			select {
			case m.news <- struct{}{}:
			default:
			}
		})
	}()
	return m
}

func (m *memory[V]) close() {
	m.cancel()
	<-m.ended
}

// Each calls handle with the value as it is now, then after each change, on the caller's goroutine, until handle
// returns false. It skips a value that is the same as the last. It misses changes if handle is slow, but not the
// latest. It returns nil, or the error of follow.
func Each[V any](ctx context.Context, follow Follow[V], same func(a, b V) bool, handle func(V) bool) error {
	m := remember(ctx, follow)
	defer m.close() // even if handle panics
	var last *V
	for {
		select {
		case <-m.news:
			now := &m.latest.Load().Value
			if last != nil && same(*last, *now) {
				continue
			}
			if last = now; !handle(*now) {
				return nil
			}
		case <-m.ended:
			return m.err
		}
	}
}

// Observer keeps a value in memory.
type Observer[V any] struct {
	memory *memory[V]
	clock  func() time.Duration
	maxAge time.Duration
}

// Observe returns an observer after its first read, which ctx bounds. After an error there is nothing to close.
func Observe[V any](
	ctx context.Context, follow Follow[V], clock func() time.Duration, maxAge time.Duration,
) (*Observer[V], error) {
	m := remember(context.Background(), func(ctx context.Context, tell func(Dated[V])) error {
		if err := follow(ctx, tell); ctx.Err() == nil {
			return err
		}
		return errClosed
	})
	var err error
	select {
	case <-m.news:
		return &Observer[V]{m, clock, maxAge}, nil
	case <-m.ended:
		err = m.err
	case <-ctx.Done():
		err = retry.ContextErr(ctx)
	}
	m.close()
	return nil, err
}

// Snapshot is what an Observer knows.
type Snapshot[V any] struct {
	Value V
	view.Observed
}

// Current returns what the observer knows now.
func (o *Observer[V]) Current() Snapshot[V] {
	var ended error
	select {
	case <-o.memory.ended:
		ended = o.memory.err
	default:
	}
	latest := o.memory.latest.Load()
	age := o.clock() - latest.Sent
	return Snapshot[V]{latest.Value, view.Observed{Age: age, Trusted: ended == nil && age <= o.maxAge, Err: ended}}
}

// Close ends the observer and waits for its goroutine.
func (o *Observer[V]) Close() { o.memory.close() }
