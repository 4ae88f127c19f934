package admin

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/names"
)

// apply tells what a watch has answered. What is not newer than the last read was told by that.
func (w *watcher) apply(ctx context.Context, events []*clientv3.Event) error {
	events = slices.DeleteFunc(events, func(ev *clientv3.Event) bool { return ev.Kv.ModRevision <= w.revision })
	if len(events) == 0 {
		return nil
	}
	slices.SortStableFunc(events, inTurn)
	for batch := range slices.Chunk(events, maxEndings) {
		how, epoch, err := w.ask(ctx, batch)
		if err != nil {
			return err
		}
		for i, ev := range batch {
			w.revision = max(w.revision, ev.Kv.ModRevision-1) // others of this revision may follow
			if err := w.change(ctx, ev, how[i], epoch); err != nil {
				return err
			}
		}
	}
	w.revision = events[len(events)-1].Kv.ModRevision
	return nil
}

// inTurn orders the events of one revision, so that of the two entries of a lock that can be downgraded the writer's
// stands for as long as the reader's does. Deletions come first, as in etcd.
func inTurn(a, b *clientv3.Event) int {
	rank := func(ev *clientv3.Event) int {
		reader := layout.IsReader(string(ev.Kv.Key))
		switch {
		case ev.Type != clientv3.EventTypeDelete && reader:
			return 3
		case ev.Type != clientv3.EventTypeDelete:
			return 2
		case reader:
			return 0
		default:
			return 1
		}
	}
	return cmp.Or(cmp.Compare(a.Kv.ModRevision, b.Kv.ModRevision), cmp.Compare(rank(a), rank(b)))
}

// change tells one event of the watch.
func (w *watcher) change(ctx context.Context, ev *clientv3.Event, how What, epoch []*mvccpb.KeyValue) (err error) {
	rev := ev.Kv.ModRevision
	before, known := w.standing[string(ev.Kv.Key)]
	if w.isSecond(ev) {
		return nil
	}
	if ev.Type == clientv3.EventTypeDelete {
		if !known {
			return nil
		}
		switch {
		case before.Released(), !before.Notice.Until.IsZero(): // it no longer stood on the lease of its session
			how = Released
		case how == Released && !w.holders[before.Revision]:
			how = Left
		}
		if err := w.removed(before, how, rev); err != nil {
			return err
		}
		return w.acquired(rev)
	}
	e := w.queue.View(ev.Kv)
	e.Token = before.Token
	if !known {
		if e.Token, err = w.client.token(ctx, epoch, e.Revision); err != nil {
			return err
		}
	}
	w.standing[e.Key] = e
	if !known && !e.Shared {
		w.writer = e
	}
	if known {
		return w.modified(before, e, rev)
	}
	if err := w.tell(Event{What: Queued, Entry: e, Revision: rev}); err != nil {
		return err
	}
	return w.acquired(rev)
}

// isSecond reports whether an event is about the reader's entry of a lock that can be downgraded, whose writer's entry
// stands. Nothing is told of it until that is gone.
func (w *watcher) isSecond(ev *clientv3.Event) bool {
	if !layout.IsReader(string(ev.Kv.Key)) {
		return false
	}
	if ev.Type == clientv3.EventTypeDelete {
		for rev, e := range w.second {
			if e.Key == string(ev.Kv.Key) {
				delete(w.second, rev)
				return true
			}
		}
		return false
	}
	_, is := w.second[ev.Kv.CreateRevision]
	if !is && (w.writer.Revision != ev.Kv.CreateRevision || w.standing[w.writer.Key].Revision != w.writer.Revision) {
		return false
	}
	e := w.queue.View(ev.Kv)
	e.Token = w.writer.Token
	if is {
		e.Token = w.second[e.Revision].Token
	}
	w.second[e.Revision] = e
	return true
}

// maxEndings bounds the reads of one Txn; etcd takes 128.
const maxEndings = 100

// ask reads the epoch now, and for each deletion whether the session key of the entry's lease was there after it: an
// entry that goes with its lease goes at the same revision as that key. The key of the entry names the lease under
// which it was put, so that nothing need be known of the entry: the same answer may tell that it has queued.
func (w *watcher) ask(ctx context.Context, events []*clientv3.Event) (how []What, epoch []*mvccpb.KeyValue, err error) {
	how = make([]What, len(events))
	ops := []clientv3.Op{clientv3.OpGet(names.EpochKey(w.client.namespace))}
	var asked []int
	for i, ev := range events {
		how[i] = Released
		lease, ours := layout.LeaseOf(string(ev.Kv.Key))
		if ev.Type != clientv3.EventTypeDelete || !ours {
			continue
		}
		key := names.SessionKey(w.client.namespace, lease)
		ops = append(ops, clientv3.OpGet(key, clientv3.WithCountOnly(), clientv3.WithRev(ev.Kv.ModRevision)))
		asked = append(asked, i)
	}
	resp, err := w.client.read(ctx, ops...)
	if errors.Is(err, rpctypes.ErrCompacted) { // then how they went is not known
		for _, i := range asked {
			how[i] = Gone
		}
		resp, err = w.client.read(ctx, ops[0])
		asked = nil
	}
	if err != nil {
		return nil, nil, err
	}
	for n, i := range asked {
		if resp.Range(n+1).Count == 0 {
			how[i] = Lost
		}
	}
	return how, resp.Range(0).Kvs, nil
}

// modified tells what was written into an entry: that its holder has released it and it stays, or what an
// administrator asks for.
func (w *watcher) modified(before, now Entry, rev int64) error {
	if !before.Released() && now.Released() {
		if err := w.tell(Event{What: Taken, Entry: now, Revision: rev}); err != nil {
			return err
		}
	}
	told := before.Notice
	told.Until = now.Notice.Until // the second step of a removal
	switch {
	case now.Notice == told:
		return nil
	case now.Notice.Removed:
		return w.tell(Event{What: Removed, Entry: now, Revision: rev})
	default:
		return w.tell(Event{What: Kicked, Entry: now, Revision: rev})
	}
}

// removed tells that an entry is gone.
func (w *watcher) removed(e Entry, how What, rev int64) error {
	delete(w.standing, e.Key)
	delete(w.holders, e.Revision)
	if second, ok := w.second[e.Revision]; ok { // downgraded: its holder reads from now on
		delete(w.second, e.Revision)
		w.standing[second.Key] = second
	}
	return w.tell(Event{What: how, Entry: e, Revision: rev})
}

// acquired tells which entries hold now that did not before.
func (w *watcher) acquired(rev int64) error {
	for _, e := range w.holding() {
		if w.holders[e.Revision] {
			continue
		}
		w.holders[e.Revision] = true
		if err := w.tell(Event{What: Acquired, Entry: e, Revision: rev}); err != nil {
			return err
		}
	}
	return nil
}

// holding returns the entries that hold: the first, and if that is a reader's, those that no writer's is ahead of.
func (w *watcher) holding() []Entry {
	var first Entry
	writer := int64(math.MaxInt64)
	for _, e := range w.standing {
		if first.Key == "" || e.Revision < first.Revision {
			first = e
		}
		if !e.Shared {
			writer = min(writer, e.Revision)
		}
	}
	switch {
	case first.Key == "":
		return nil
	case !first.Shared:
		return []Entry{first}
	default:
		return slices.DeleteFunc(inOrder(w.standing), func(e Entry) bool { return e.Revision >= writer })
	}
}

func (w *watcher) tell(ev Event) error {
	ev.Waiting = len(w.standing) - len(w.holding())
	if !w.yield(ev, nil) {
		return backoff.Final(errLoopLeft)
	}
	return nil
}

func inOrder(entries map[string]Entry) []Entry {
	return slices.SortedFunc(maps.Values(entries), byRevision)
}

func byRevision(a, b Entry) int { return cmp.Compare(a.Revision, b.Revision) }
