package view

import "time"

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
