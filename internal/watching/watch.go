// Package watching is how a change in etcd is heard: it keeps watches of etcd alive.
//
// A watch starts from now. From a known revision etcd would serve it by a loop of 100 ms for late watchers. A read
// finds what has happened before the watch stood. So you arm a watch, read, and then hear:
//
//	rev 10  you read: A holds
//	rev 11  A goes
//	rev 12  your watch stands, and tells what comes after 12. Without a second read you would wait for A for ever
//
// Whatever ends the watch, pause, arm another, and read again.
//
// watch.go arms a watch on a stream of streams.go. follow.go follows the keys of a range, or waits for one change, as
// an entry waits until the entry ahead has gone. listing.go makes a value of the keys, and observe.go keeps it.
package watching

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-go/holdfast/internal/retry"
)

const (
	// HealthyAfter is how long a watch must live to reset the pauses.
	HealthyAfter = time.Second

	// streamKey is a metadata key to tell streams apart: etcd's client opens a stream for each set of metadata. etcd
	// ignores it.
	streamKey = "holdfast-stream"
)

var errUnanswered = errors.New("etcd has not answered the request for the watch")

var (
	// ErrTick is Next's error for a tick.
	ErrTick = errors.New("tick")
	// ErrUnarmed is Arm's error if etcd answers, and has not created the watch.
	ErrUnarmed = errors.New("arm a watch")
)

// Request says what is watched.
type Request struct {
	Client *clientv3.Client
	Open   context.Context // ends the watch; the stream has its values, and not those of a caller
	Key    string
	Opts   []clientv3.OpOption
	Within time.Duration // after that Arm doubts the stream

	// Look reads what no event tells. Arm calls it if the watch was not created, to find out whether that is the stream's
	// fault or etcd's: a read goes to other members if one hangs, gets a new token if that of the stream has expired, and
	// fails for good if a permission was withdrawn. nil: Arm returns why there is no watch.
	Look func(ctx context.Context) error
}

// Watch is a watch after its creation.
type Watch struct {
	Close func() // ends the watch; call it

	stream *Stream
	events clientv3.WatchChan
	stands time.Time
}

// Arm creates a watch and returns when it stands: it tells what happens from then on. The watch ends with ctx. If it is
// not created, Arm returns Look's error, or ErrUnarmed: then a retry may help, on another stream. Within is no
// deadline: after it Arm looks beside the creation, and gives up the stream only if the look is answered first.
func (st *Stream) Arm(ctx context.Context, r Request) (*Watch, error) {
	patience, giveUp := context.WithCancel(ctx)
	defer giveUp()
	defer context.AfterFunc(r.Open, giveUp)()
	looking, stopLooking := context.WithCancel(ctx)
	defer stopLooking()
	look := sync.OnceValue(func() error {
		if r.Look == nil {
			return nil
		}
		return r.Look(looking)
	})
	looked := make(chan struct{})
	// Where all of etcd is slow, a new watch would stand at the end of the same line:
	//
	//	0 s  a watch is requested; etcd takes 4 s for each request
	//	1 s  a look is sent
	//	4 s  the watch stands
	doubt := time.AfterFunc(r.Within, func() { // joined below
		defer close(looked)
		_ = look()
		giveUp()
	})
	// The context outlives r.Open until etcd has answered: see create.
	wctx, cancel := context.WithCancel(st.context(context.WithoutCancel(r.Open)))
	events, err := st.create(patience, wctx, cancel, r)
	st.armed()
	giveUp()
	if err == nil {
		stopLooking() // the next look sees more
	}
	if !doubt.Stop() {
		<-looked
	}
	if err == nil {
		w := &Watch{stream: st, events: events, stands: time.Now()}
		withCall, withOpen := context.AfterFunc(ctx, cancel), context.AfterFunc(r.Open, cancel)
		w.Close = func() { withCall(); withOpen(); cancel() }
		return w, nil
	}
	if ctx.Err() != nil {
		err = retry.ContextErr(ctx)
	}
	if r.Look == nil {
		return nil, err
	}
	if err := look(); err != nil { // etcd does not answer reads either: not the stream's fault
		return nil, err
	}
	st.drop()
	return nil, retry.Again(fmt.Errorf("%w: %w", ErrUnarmed, err))
}

// create creates a watch on wctx, and returns when etcd has answered or patience has ended. cancel ends wctx.
func (st *Stream) create(patience, wctx context.Context, cancel func(), r Request) (clientv3.WatchChan, error) {
	// A stream creates one watch at a time, as etcd's client does by itself. So it has one of the goroutines below at
	// most, however many callers give up and come again while etcd does not answer.
	select {
	case st.turn <- struct{}{}:
	case <-patience.Done():
		cancel()
		return nil, errUnanswered
	}
	var events clientv3.WatchChan
	answered := make(chan error)
	// A caller that gives up leaves its watch to this goroutine. If it canceled the watch before etcd has answered, etcd's
	// client would ignore the answer:
	//
	//	0 s    a watch is requested
	//	1 s    its caller gives up, and cancels it
	//	1.1 s  etcd creates the watch, and keeps it; the client keeps its stream and goroutines, until it is closed
	go func() { // ends with etcd's answer, or when the client is closed: the session's Close does not wait for it
		events = r.Client.Watch(wctx, r.Key, append(r.Opts, clientv3.WithCreatedNotify())...)
		resp, open := <-events
		<-st.turn
		select {
		case answered <- responseErr(resp, open):
		case <-patience.Done():
			cancel()
		}
	}()
	select {
	case err := <-answered:
		if err != nil {
			cancel()
		}
		return events, err
	case <-patience.Done():
		return nil, errUnanswered
	}
}

// context returns the context to create a watch of the stream on.
func (st *Stream) context(open context.Context) context.Context {
	ctx := clientv3.WithRequireLeader(open)
	return metadata.AppendToOutgoingContext(ctx, streamKey, strconv.FormatInt(st.number, 10))
}

// Next waits for a response of the watch, for tick (ErrTick), or for the end of the watch or of ctx.
func (w *Watch) Next(ctx context.Context, tick <-chan time.Time) (clientv3.WatchResponse, error) {
	select {
	case resp, ok := <-w.events:
		return resp, responseErr(resp, ok)
	case <-tick:
		return clientv3.WatchResponse{}, ErrTick
	case <-ctx.Done():
		return clientv3.WatchResponse{}, retry.ContextErr(ctx)
	}
}

// responseErr returns why a watch has ended with that response, or without any; nil: it goes on.
func responseErr(resp clientv3.WatchResponse, ok bool) error {
	if !ok {
		return errors.New("the watch was closed")
	}
	return resp.Err()
}

// Healthy reports whether the watch has lived long enough for the pauses to start anew.
func (w *Watch) Healthy() bool { return time.Since(w.stands) >= HealthyAfter }

// Ended returns the error of a watch after Next has failed with err: its user arms another. It is nil if the watch was
// healthy, and ctx has not ended.
func (w *Watch) Ended(ctx context.Context, err error) error {
	if w.Healthy() && ctx.Err() == nil {
		return nil
	}
	return retry.Again(err)
}

// GiveUp makes later watches use other streams: this one is silent although etcd answers. It returns what Ended does.
func (w *Watch) GiveUp(ctx context.Context, why string) error {
	w.stream.drop()
	return w.Ended(ctx, errors.New(why))
}
