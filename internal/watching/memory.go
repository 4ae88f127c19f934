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

// Latest calls handle with what follow tells, on the caller's goroutine, until handle returns false (then Latest
// returns nil) or follow returns. While handle runs, a newer value replaces the waiting value.
func Latest[T any](ctx context.Context, follow Follow[T], handle func(T) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	latest := make(chan T, 1)
	ended := make(chan error)
	go func() { // joined below
		ended <- follow(ctx, func(now T) {
			select {
			case <-latest:
			default:
			}
			latest <- now // never blocks: this is the only sender
		})
		close(ended)
	}()
	// Deferred, to join it even if handle panics.
	defer func() {
		cancel()
		for range ended {
		}
	}()
	for {
		select {
		case now := <-latest:
			if !handle(now) {
				return nil
			}
		case err := <-ended:
			return err
		}
	}
}

var errClosed = fmt.Errorf("the observer was closed: %w", context.Canceled)

// Memory keeps the latest value of a Follow.
type Memory[T any] struct {
	cancel context.CancelFunc
	first  chan struct{} // closed when something was told
	ended  chan struct{} // closed when follow has returned and err is set
	err    error
	latest atomic.Pointer[T]
}

// Remember waits until follow has told something, or ctx ends, and returns a Memory. spawn runs a function on a
// goroutine; it reports false if it has not, because a session is closed. After an error there is nothing to close.
func Remember[T any](ctx context.Context, spawn func(func()) bool, follow Follow[T]) (*Memory[T], error) {
	m := &Memory[T]{first: make(chan struct{}), ended: make(chan struct{})}
	mctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	run := func() { // joined by Close, and by whose spawn it is
		defer close(m.ended)
		m.err = follow(mctx, func(now T) {
			if m.latest.Swap(&now) == nil {
				close(m.first)
			}
		})
		if mctx.Err() != nil {
			m.err = errClosed
		}
	}
	if !spawn(run) {
		cancel()
		return nil, holdfast.ErrClosed
	}
	var err error
	select {
	case <-m.first:
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
