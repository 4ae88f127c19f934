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

// healthyFollow: the end of a watch that lived for that long is a new failure,
// and resets the backoff.
const healthyFollow = time.Second

// Follow tells who holds, first as it is and then at every change, in order,
// until ctx or what the reader was made of ends, or etcd says what no retry can
// mend; that is the error. In between it survives whatever happens to its watch.
// It reads again every now and then, as often as every says, and tells that too:
// the Sent of a front is then later and nothing else has changed.
//
// tell is called on the caller's goroutine and must not block: what is not
// read here piles up in the client.
func (r *FrontReader) Follow(ctx context.Context, every time.Duration, tell func(Front)) error {
	if err := r.ended(ctx); err != nil {
		return err
	}
	open, cancel := r.whileOpen(ctx)
	defer cancel()

	policy := r.policy
	policy.Attempt = 0 // a watch lasts as long as it does
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

// follower knows what it has told.
type follower struct {
	r     *FrontReader
	every time.Duration
	tell  func(Front)
	seen  Front
	told  bool
}

// watch follows the queue for as long as one watch lasts. nil: it lasted for a
// while, so the pauses before the next start anew.
//
// The watch is from "now", which is served at once, and the read made after it
// stands finds what was before. The read's revision is not smaller than the
// watch's, so nothing falls in between; what the watch tells of up to that
// revision is in the read already, and skipped.
func (f *follower) watch(ctx context.Context) error {
	wctx, stream := f.r.stream.context(f.r.open)
	wctx, cancel := context.WithCancel(wctx)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()

	unarmed := time.AfterFunc(f.r.policy.Attempt, cancel) // Watch itself blocks until the server has answered
	defer unarmed.Stop()
	events := f.r.client.Watch(wctx, f.r.entries, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if _, err := f.next(ctx, events, nil); err != nil {
		if _, err := f.read(ctx); err != nil {
			return err
		}
		f.r.stream.leave(stream)
		return backoff.Again(fmt.Errorf("arm a watch: %w", err))
	}
	unarmed.Stop()
	armed := time.Now()

	refresh := time.NewTicker(f.every)
	defer refresh.Stop()
	if _, err := f.read(ctx); err != nil {
		return err
	}
	for {
		changes, err := f.next(ctx, events, refresh.C)
		switch {
		case err != nil && time.Since(armed) >= healthyFollow:
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
				// The watch has not told: it may merely be late, or silent for
				// good, on a connection that is dead or a member that hangs.
				f.r.stream.leave(stream)
				return backoff.Again(errors.New("the watch is behind"))
			}
		}
	}
}

// next waits for the watch (changes is not nil), for tick (both are nil), or
// for the end of either (err).
func (f *follower) next(ctx context.Context, events clientv3.WatchChan, tick <-chan time.Time) (changes []*clientv3.Event, err error) {
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

// read looks who holds and tells it, and reports whether that is a change.
func (f *follower) read(ctx context.Context) (changed bool, err error) {
	now, err := f.r.read(ctx, f.seen)
	if err != nil {
		return false, err
	}
	changed = f.told && !now.same(f.seen)
	f.seen, f.told = now, true
	f.tell(now)
	return changed, nil
}

// apply goes through what the watch saw. A new value of the front entry is
// told from the event; with anything else that may change who holds, it
// reports false and a read decides.
func (f *follower) apply(changes []*clientv3.Event) bool {
	for _, ev := range changes {
		if ev.Kv.ModRevision <= f.seen.Revision {
			continue
		}
		switch {
		case f.seen.Entry == nil && ev.Type == clientv3.EventTypePut:
			return false
		case f.seen.Entry == nil || string(ev.Kv.Key) != string(f.seen.Entry.Key):
			// Joined or left further back.
		case ev.Type == clientv3.EventTypePut && f.seen.holds(ev.Kv):
			f.seen.Entry, f.seen.Value, f.seen.Revision = ev.Kv, f.r.valueOf(ev.Kv), ev.Kv.ModRevision
			f.tell(f.seen)
		default:
			return false
		}
	}
	return true
}

// followStream chooses the stream of a reader's watches. A stream stays with one
// member, and with the token it was opened with. Where that member hangs, or that
// token has expired, no more watches can be made on it; then later ones go to a
// new stream. No other watch of the program shares it: one that waits there to be
// armed would keep ours waiting.
type followStream struct {
	number atomic.Int64 // of the stream that new watches go to; 0: none was chosen yet
}

// lastStream numbers the streams of all sessions and readers of the program.
var lastStream atomic.Int64

// streamOfReader is sent along. etcd's client has one stream for each set of
// metadata; etcd does not look at it.
const streamOfReader = "holdfast-reader"

// context is what to make a watch on, and the number of its stream. It comes of
// open, not of a caller's context, whose metadata would open one more stream.
func (s *followStream) context(open context.Context) (context.Context, int64) {
	s.leave(0)
	number := s.number.Load()
	return metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(open), streamOfReader, strconv.FormatInt(number, 10)), number
}

// leave has later watches use another stream than that one, on which one could
// not be made, or was silent, although etcd answers.
func (s *followStream) leave(number int64) {
	if s.number.Load() == number {
		s.number.CompareAndSwap(number, lastStream.Add(1))
	}
}
