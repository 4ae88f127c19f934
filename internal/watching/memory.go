package watching

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// Follow calls tell with what etcd says of something, then after each change, until ctx ends or following fails.
type Follow[T any] func(ctx context.Context, tell func(T)) error

var errClosed = fmt.Errorf("the observer was closed: %w", context.Canceled)

// Memory keeps the latest value of a Follow.
type Memory[T any] struct {
	cancel context.CancelFunc
	news   chan struct{} // full when something was told since the last look
	ended  chan struct{} // closed when follow has returned and err is set
	err    error
	latest atomic.Pointer[T]
}

// newMemory returns a Memory, and what fills it until Close.
func newMemory[T any](ctx context.Context, follow Follow[T]) (m *Memory[T], run func()) {
	ctx, cancel := context.WithCancel(ctx)
	m = &Memory[T]{cancel: cancel, news: make(chan struct{}, 1), ended: make(chan struct{})}
	return m, func() {
		defer close(m.ended)
		m.err = follow(ctx, func(now T) {
			m.latest.Store(&now)
			select {
			case m.news <- struct{}{}:
			default:
			}
		})
	}
}

// Latest calls handle with what follow tells, on the caller's goroutine, until handle returns false (then Latest
// returns nil) or follow returns. While handle runs, a newer value replaces the waiting value.
func Latest[T any](ctx context.Context, follow Follow[T], handle func(T) bool) error {
	m, run := newMemory(ctx, follow)
	go run()        // joined by Close
	defer m.Close() // even if handle panics
	for {
		select {
		case <-m.news:
			if !handle(*m.latest.Load()) {
				return nil
			}
		case <-m.ended:
			return m.err
		}
	}
}

// Remember waits until follow has told something, or ctx ends, and returns a Memory. spawn runs a function on a
// goroutine; it reports false if it has not, because a session is closed. After an error there is nothing to close.
func Remember[T any](ctx context.Context, spawn func(func()) bool, follow Follow[T]) (*Memory[T], error) {
	m, run := newMemory(context.Background(), func(ctx context.Context, tell func(T)) error {
		if err := follow(ctx, tell); ctx.Err() == nil {
			return err
		}
		return errClosed
	})
	if !spawn(run) { // joined by Close, and by whose spawn it is
		m.cancel()
		return nil, holdfast.ErrClosed
	}
	var err error
	select {
	case <-m.news:
		return m, nil
	case <-m.ended:
		err = m.err
	case <-ctx.Done():
		err = retry.ContextErr(ctx)
	}
	m.Close()
	return nil, err
}

// Latest returns the latest value and, if no other will follow, why.
func (m *Memory[T]) Latest() (now T, ended error) {
	select {
	case <-m.ended:
		return *m.latest.Load(), m.err
	default:
		return *m.latest.Load(), nil
	}
}

// Close ends follow and waits for it.
func (m *Memory[T]) Close() {
	m.cancel()
	<-m.ended
}
