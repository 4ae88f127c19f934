package view

import (
	"time"

	"github.com/holdfast-go/holdfast/backoff"
)

// Observed says how far the Snapshot of an Observer can be relied on. Observers are in packages election, member and
// shard, and have one contract:
//
//   - It starts with a read, bounded by ctx. Then it has one watch, and reads in each third of MaxAge (default 15 s).
//   - Current returns what the observer knows, from memory: without a request, and without an allocation. What it
//     returns may have changed since, also if it is trusted. Use it to route and to display, never to write.
//   - Close ends it and waits for its goroutine. Current then returns what was known last, untrusted.
//   - Any number of goroutines may use it.
type Observed struct {
	// Age is the time since the last read was sent that found the value as it is, or before changes that the watch has
	// told since.
	Age time.Duration

	// Trusted means that Age is at most MaxAge and the observer has not ended.
	Trusted bool

	// Err is why the observer has ended, nil while it runs: context.Canceled after Close, holdfast.ErrClosed with its
	// session, holdfast.ErrClientClosed, or etcd's error.
	Err error
}

// ReaderOptions are the policies of the Readers of packages election, member and shard. The zero value of each field is
// its default. A value out of range is a *holdfast.ArgumentError or *holdfast.NameError of the first call.
type ReaderOptions struct {
	// Namespace is that of the sessions of candidates and members, default "holdfast".
	Namespace string

	// MaxAge is the age up to which a Snapshot is Trusted; a watch is checked by a read in each third of it. Default
	// 15 s; at least 30 ms.
	MaxAge time.Duration

	// Retry sets the pauses between attempts.
	Retry backoff.Policy

	// Clock is elapsed time; default session.SystemClock(). For tests.
	Clock func() time.Duration
}
