package queuetest

import (
	"context"
	"sync/atomic"
	"testing"
)

// Listened is a context that counts what listens to its end.
type Listened struct {
	context.Context
	Now, ever atomic.Int64
}

// AfterFunc is what package context calls instead of starting a goroutine.
func (l *Listened) AfterFunc(f func()) func() bool {
	l.Now.Add(1)
	l.ever.Add(1)
	inner := context.AfterFunc(l.Context, f)
	var once atomic.Bool
	return func() bool {
		if once.CompareAndSwap(false, true) {
			l.Now.Add(-1)
		}
		return inner()
	}
}

// Value hides the context inside, which package context would listen to directly.
func (l *Listened) Value(any) any { return nil }

// NothingListens checks that something listened, and does not any more.
func (l *Listened) NothingListens(t *testing.T, what string) {
	t.Helper()
	if l.ever.Load() == 0 || l.Now.Load() != 0 {
		t.Errorf("%s: of %d that listened to the end of a context %d still do: each call costs memory for as long as it",
			what, l.ever.Load(), l.Now.Load())
	}
}
