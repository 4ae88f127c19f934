package watching

import (
	"context"
	"time"
)

// Watch calls handle with the value as it is now, then after each change, until handle returns false. It skips a value
// that is the same as the last. It misses changes if handle is slow, but not the latest. It returns nil, or an error of
// Read.
func (r *Reader[T, V]) Watch(ctx context.Context, same func(a, b V) bool, handle func(V) bool) error {
	var last *V
	return Latest(ctx, r.follow, func(now dated[V]) bool {
		if last != nil && same(*last, now.value) {
			return true
		}
		last = &now.value
		return handle(now.value)
	})
}

// Observer keeps a value in memory.
type Observer[V any] struct {
	memory *Memory[dated[V]]
	opts   Options
}

// Observe returns an observer after its first read, which ctx bounds. The errors are those of Read.
func (r *Reader[T, V]) Observe(ctx context.Context) (*Observer[V], error) {
	spawn := func(run func()) bool { go run(); return true } // joined by Close
	memory, err := Remember(ctx, spawn, r.follow)
	if err != nil {
		return nil, err
	}
	return &Observer[V]{memory, r.opts}, nil
}

// Snapshot is what an Observer knows.
type Snapshot[V any] struct {
	Value   V
	Age     time.Duration // since the first read of the value was sent
	Trusted bool          // it is at most MaxAge old, and the observer has not ended
	Err     error         // why the observer has ended, or nil
}

// Current returns what the observer knows now.
func (o *Observer[V]) Current() Snapshot[V] {
	latest, ended := o.memory.Latest()
	age := o.opts.Clock() - latest.sent
	return Snapshot[V]{latest.value, age, ended == nil && age <= o.opts.MaxAge, ended}
}

// Close ends the observer and waits for its goroutine.
func (o *Observer[V]) Close() { o.memory.Close() }
