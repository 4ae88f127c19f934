package election

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/front"
	"github.com/holdfast-go/holdfast/internal/watching"
)

// Observer keeps the current leader in memory, with one watch and a read each third of MaxAge. It may be used by any
// number of goroutines.
type Observer struct {
	reader *Reader
	memory *watching.Memory[observation]
}

type observation struct {
	leader Leader
	sent   time.Duration // when the read that found the leader was sent
}

// Snapshot is what an Observer knows.
type Snapshot struct {
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

// Observer is Reader.Observer on the session's client. It ends with holdfast.ErrClosed when the session is closed.
func (e *Election) Observer(ctx context.Context) (*Observer, error) {
	return newObserver(ctx, e.reader())
}

func newObserver(ctx context.Context, r *Reader) (*Observer, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	if ctx == nil {
		return nil, &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	spawn := r.spawn
	if spawn == nil {
		spawn = func(run func()) bool { go run(); return true } // joined by Close
	}
	memory, err := watching.Remember(ctx, spawn, func(ctx context.Context, tell func(observation)) error {
		return r.told(ctx, func(f front.Front) { tell(observation{leaderOf(f), f.Sent}) })
	})
	if err != nil {
		return nil, r.failed("observe", err)
	}
	return &Observer{r, memory}, nil
}

// Current returns what the observer knows now, without an RPC.
func (o *Observer) Current() Snapshot {
	latest, ended := o.memory.Latest()
	now := Snapshot{Leader: latest.leader, Age: o.reader.front.Clock()() - latest.sent, Err: ended}
	now.Trusted = ended == nil && now.Age <= o.reader.maxAge
	return now
}

// Close ends the observer and waits for its goroutine. Current then returns the last known leader, untrusted.
func (o *Observer) Close() {
	o.memory.Close()
}
