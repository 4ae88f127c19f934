package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-go/holdfast/backoff"
)

// Follow calls tell with the front of the queue, then after each change, in order, and after each regular read, one in
// every; then only Sent has changed. It returns when ctx, the session or the client ends, or when etcd returns an error
// that no retry can mend. It survives every failure of its watch.
//
// tell is called on the caller's goroutine and must not block: until it returns, the client buffers events without a
// bound.
func (r *FrontReader) Follow(ctx context.Context, every time.Duration, tell func(Front)) error {
	if err := r.ended(ctx); err != nil {
		return err
	}
	open, cancel := r.whileOpen(ctx)
	defer cancel()

	policy := r.policy
	policy.Attempt = 0 // a watch has no timeout
	f := follower{r: r, every: every, tell: tell}
	for {
		err := backoff.Retry(open, policy, f.watch)
		if ctx.Err() != nil {
			return backoff.ContextErr(ctx)
		}
		if err = r.reason(ctx, err); err != nil {
			return err
		}
	}
}

// follower is the state of one call of Follow.
type follower struct {
	r     *FrontReader
	every time.Duration
	tell  func(Front)
	seen  Front // the latest that tell was called with
}

// watch follows the queue until its watch ends. It returns nil if a healthy watch
// ended, so that the pauses start anew.
//
// The watch starts from now, which etcd serves at once, and the read after its creation
// finds what happened before. The revision of the read is not smaller than that of the
// watch, so nothing is missed in between. Events up to the revision of the read are
// skipped.
func (f *follower) watch(ctx context.Context) error {
	wctx, stream := f.r.stream.context(f.r.open)
	wctx, cancel := context.WithCancel(wctx)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()

	arming := time.AfterFunc(f.r.policy.Attempt, cancel) // Watch itself blocks until the server has answered
	defer arming.Stop()
	events := f.r.client.Watch(wctx, f.r.entries, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if _, err := f.next(ctx, events, nil); err != nil {
		if _, err := f.read(ctx); err != nil {
			return err
		}
		f.r.stream.drop(stream)
		return backoff.Again(fmt.Errorf("arm a watch: %w", err))
	}
	arming.Stop()
	armed := time.Now()

	refresh := time.NewTicker(f.every)
	defer refresh.Stop()
	if _, err := f.read(ctx); err != nil {
		return err
	}
	for {
		changes, err := f.next(ctx, events, refresh.C)
		switch {
		case err != nil && time.Since(armed) >= healthyWatch:
			return nil
		case err != nil:
			return backoff.Again(err)
		case changes != nil:
			if f.apply(changes) {
				continue
			}
			if _, err := f.read(ctx); err != nil {
				return err
			}
		default:
			changed, err := f.read(ctx)
			if err != nil {
				return err
			}
			if changed {
				// The watch has not told this. It may only be late, or silent for
				// good: its connection is dead, or its member hangs.
				f.r.stream.drop(stream)
				return backoff.Again(errors.New("the watch is behind"))
			}
		}
	}
}

// next waits for events (changes is not nil), for tick (changes and err are nil), or
// for the end of the watch or of ctx (err).
func (f *follower) next(
	ctx context.Context, events clientv3.WatchChan, tick <-chan time.Time,
) (changes []*clientv3.Event, err error) {
	select {
	case resp, ok := <-events:
		if !ok {
			return nil, errors.New("the watch was closed")
		}
		if resp.Events == nil {
			resp.Events = []*clientv3.Event{}
		}
		return resp.Events, resp.Err()
	case <-tick:
		return nil, nil
	case <-ctx.Done():
		return nil, backoff.ContextErr(ctx)
	}
}

// read reads the front, calls tell with it, and reports whether it has changed since the read before.
func (f *follower) read(ctx context.Context) (changed bool, err error) {
	now, err := f.r.read(ctx, f.seen)
	if err != nil {
		return false, err
	}
	changed = !now.same(f.seen)
	f.seen = now
	f.tell(now)
	return changed, nil
}

// apply applies events. A new value of the front entry goes to tell. apply returns false for any other event that may
// change the front: then a read decides.
func (f *follower) apply(changes []*clientv3.Event) bool {
	for _, ev := range changes {
		if ev.Kv.ModRevision <= f.seen.Revision {
			continue
		}
		switch {
		case f.seen.Entry == nil && ev.Type == clientv3.EventTypePut:
			return false
		case f.seen.Entry == nil || string(ev.Kv.Key) != string(f.seen.Entry.Key):
			// An entry behind the front.
		case ev.Type == clientv3.EventTypePut && f.seen.holds(ev.Kv):
			f.seen.Entry, f.seen.Value, f.seen.Revision = ev.Kv, f.r.valueOf(ev.Kv), ev.Kv.ModRevision
			f.tell(f.seen)
		default:
			return false
		}
	}
	return true
}

// followStream is the stream of a reader's watches: see streams for what binds a watch
// to its stream. No other watch of the program uses it, since creating that would delay
// ours.
type followStream struct {
	number atomic.Int64 // of the stream for the next watch; 0: none was chosen yet
}

// lastStream numbers the streams of all sessions and readers of the program.
var lastStream atomic.Int64

// streamOfReader is the metadata key that tells the streams of readers apart.
const streamOfReader = "holdfast-reader"

// context returns the context to create a watch on, and the number of its stream. It is
// derived from open, not from a caller's context, whose metadata would open another
// stream.
func (s *followStream) context(open context.Context) (context.Context, int64) {
	s.drop(0)
	number := s.number.Load()
	ctx := clientv3.WithRequireLeader(open)
	return metadata.AppendToOutgoingContext(ctx, streamOfReader, strconv.FormatInt(number, 10)), number
}

// drop makes later watches use another stream, because that one is silent although etcd answers.
func (s *followStream) drop(number int64) {
	if s.number.Load() == number {
		s.number.CompareAndSwap(number, lastStream.Add(1))
	}
}
