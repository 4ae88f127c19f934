package admin

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/internal/watching"
)

// What an Event tells of an entry, beside audit.Kicked, Removed, Released, Detached, Attached and Lost.
const (
	// Queued: the entry is in the queue. One that holds at once is queued first.
	Queued audit.Event = "queued"
	// Acquired: the entry is the first of its queue, or a reader's that no writer is ahead of, and no DeadClaim is ahead.
	Acquired audit.Event = "acquired"
	// Taken: the holder has released it, and the name stays taken until Entry.TakenUntil
	// (locker.Options.MinHold). audit.Released follows.
	Taken audit.Event = "taken"
	// Left: the entry waited, and was let go.
	Left audit.Event = "left"
	// Gone: the entry was removed while the watch was interrupted, and how is not known.
	Gone audit.Event = "gone"
)

// Event is one change of a queue. audit.Kicked and audit.Removed have an Entry.Notice; audit.Released follows, after
// Removed at once or in a few seconds. After audit.Detached it tells that the ticket has ended. Those behind audit.Lost
// wait for the claim of the entry: see DeadClaim.
type Event struct {
	What     audit.Event
	Entry    Entry // as it was last seen; without TTL
	Revision int64 // of etcd, at which it happened; of the read that found it, if that is not known
	Waiting  int   // entries behind the holder or holders after this change
}

// Events ranges over the changes of a queue, in the order of etcd's history: first over what stands
// there, as Queued and Acquired, then over each change until ctx ends. A watch that ends or hangs is
// followed by one that goes on from there, so nothing is missed. Only if etcd has compacted that
// history, the queue is read again: entries that are gone by then are told as Gone, and those that
// came and went meanwhile are not told.
//
// Each call has one watch in etcd, one read for each answer of that, and one read every 30 seconds.
// What the body of the loop does not take piles up in memory.
//
// The sequence ends with an error, one of those of Show, unless the loop is left.
func (c *Client) Events(ctx context.Context, kind holdfast.Kind, name string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := c.usable(ctx); err != nil {
			yield(Event{}, err)
			return
		}
		q, err := c.find(kind, name)
		if err == nil {
			err = notSemaphore(q.Kind, "is Semaphore, of which there are no Events: use Show")
		}
		if err != nil {
			yield(Event{}, err)
			return
		}
		w := &watcher{client: c, queue: q, yield: yield, standing: make(map[string]Entry),
			second: make(map[int64]Entry), holders: make(map[int64]bool)}
		for {
			err := backoff.Retry(ctx, c.policy, w.follow)
			switch {
			case errors.Is(err, errLoopLeft):
				return
			case ctx.Err() != nil:
				yield(Event{}, retry.ContextErr(ctx))
				return
			case err != nil:
				yield(Event{}, fmt.Errorf("watch %v: %w", q, err))
				return
			}
		}
	}
}

var errLoopLeft = errors.New("the loop was left")

// watcher knows what it has told.
type watcher struct {
	client   *Client
	queue    layout.Keyspace
	yield    func(Event, error) bool
	revision int64            // all changes up to it are told; 0: etcd is to be read
	standing map[string]Entry // by key
	second   map[int64]Entry  // by create revision, those of listing.second
	writer   Entry            // the latest that a watch has told; of two entries of one revision it is told first
	holders  map[int64]bool   // create revisions of the entries that were told as Acquired and stand
	dead     []DeadClaim
	blind    bool // the role may not read claims
}

const (
	// reread is the time between two reads that look whether the watch is behind.
	reread = 30 * time.Second
	// rereadSoon is that time while a claim is dead below a prefix: the watch does not tell when that goes.
	rereadSoon = 500 * time.Millisecond
	// armTimeout bounds the creation of a watch: a member answers it by itself, so one that takes longer hangs.
	armTimeout = 2 * time.Second
)

// follow tells changes for as long as one watch lasts. nil: it lasted for a while, so the pauses begin anew.
//
// The first watch starts from "now", which etcd serves at once, and the read after its creation finds what was before.
// Later ones go on from the last event, which etcd brings to the present within a tenth of a second.
func (w *watcher) follow(ctx context.Context) error {
	from, end := w.queue.All()
	if !w.queue.Foreign {
		_, end = w.queue.AllClaims() // right behind the entries
	}
	opts := []clientv3.OpOption{clientv3.WithRange(end)}
	if w.revision > 0 {
		opts = append(opts, clientv3.WithRev(w.revision+1))
	}
	armed, err := watching.NewStream().Arm(ctx, watching.Request{
		Client: w.client.client, Open: ctx, Key: from, Opts: opts, Within: armTimeout,
	})
	if err != nil {
		return w.ended(ctx, err)
	}
	defer armed.Close()
	if w.revision == 0 {
		if err := w.read(ctx); err != nil {
			return err
		}
	}
	pause := reread
	again := time.NewTicker(pause)
	defer again.Stop()
	for {
		if now := w.pause(); now != pause {
			pause = now
			again.Reset(pause)
		}
		answer, err := armed.Next(ctx, again.C)
		if errors.Is(err, watching.ErrTick) {
			// Behind, it is perhaps on a member that hangs: the next watch goes to another.
			if behind, err := w.behind(ctx); err != nil || behind {
				return err
			}
			continue
		}
		if err != nil {
			if err = w.ended(ctx, err); armed.Healthy() && ctx.Err() == nil && etcderr.Retryable(err) {
				return nil
			}
			return err
		}
		if err := w.apply(ctx, answer.Events); err != nil {
			return err
		}
	}
}

// pause is the time until the next read.
func (w *watcher) pause() time.Duration {
	if w.queue.Foreign && len(w.dead) > 0 {
		return rereadSoon
	}
	return reread
}

// ended returns the error of a watch that has ended with err: whether another one is made, and from where.
func (w *watcher) ended(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return retry.ContextErr(ctx)
	case errors.Is(err, rpctypes.ErrCompacted):
		w.revision = 0
		return retry.Again(err)
	case etcderr.Classify(err) == etcderr.Unauthorized:
		return err
	default:
		return retry.Again(err)
	}
}

// read tells the difference between what was told and what stands now.
func (w *watcher) read(ctx context.Context) error {
	now, err := w.client.list(ctx, w.queue)
	if err != nil {
		return err
	}
	stands := now.byKey()
	w.revision, w.dead, w.blind = now.revision, now.dead, now.blind
	clear(w.second)
	for _, e := range inOrder(w.standing) {
		if stands[e.Key].Revision == e.Revision {
			continue
		}
		if err := w.removed(e, Gone, now.revision); err != nil {
			return err
		}
	}
	for _, e := range now.entries {
		before, told := w.standing[e.Key]
		w.standing[e.Key] = e
		if told {
			if err := w.modified(before, e, now.revision); err != nil {
				return err
			}
			continue
		}
		if err := w.tell(Event{What: Queued, Entry: e, Revision: e.Revision}); err != nil {
			return err
		}
	}
	for _, e := range now.second {
		w.second[e.Revision] = e
	}
	return w.acquired(now.revision)
}

// behind reads whether other entries stand than those that were told. It may be that events are on their way: then the
// next watch gets them. If the same stand, it tells who holds since the claims ahead have gone.
func (w *watcher) behind(ctx context.Context) (bool, error) {
	now, err := w.client.list(ctx, w.queue)
	if err != nil {
		return false, err
	}
	if now.revision < w.revision { // etcd was restored from a backup
		w.revision = 0
		return true, nil
	}
	same := func(a, b Entry) bool {
		return a.Revision == b.Revision && a.Released() == b.Released() && a.DetachedAt == b.DetachedAt &&
			a.Notice == b.Notice
	}
	stands := now.byKey()
	if !maps.EqualFunc(stands, w.standing, same) {
		return true, nil
	}
	w.standing, w.dead = stands, now.dead
	return false, w.acquired(now.revision)
}

// byKey returns the entries by their keys.
func (l listing) byKey() map[string]Entry {
	all := make(map[string]Entry, len(l.entries))
	for _, e := range l.entries {
		all[e.Key] = e
	}
	return all
}
