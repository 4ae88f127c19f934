package admin

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/retry"
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
func (w *watcher) change(
	ctx context.Context, ev *clientv3.Event, how audit.Event, epoch []*mvccpb.KeyValue,
) (err error) {
	rev := ev.Kv.ModRevision
	before, known := w.standing[string(ev.Kv.Key)]
	switch {
	case w.queue.IsClaim(string(ev.Kv.Key)):
		return w.claimChanged(ev)
	case w.isSecond(ev):
		return nil
	}
	if ev.Type == clientv3.EventTypeDelete {
		if !known {
			return nil
		}
		switch {
		case before.Released(), before.Detached(), !before.Notice.Until.IsZero(): // it no longer stood on a session's lease
			how = audit.Released
		case how == unclaimedEnd && (before.Unclaimed || w.blind):
			how = audit.Lost
		case how == audit.Lost:
			key := w.queue.ClaimKey(before.Key)
			w.dead = append(w.dead, DeadClaim{Key: key, Revision: before.Revision, Shared: before.Shared})
		case how != Gone && !w.holders[before.Revision]:
			how = Left
		case how != Gone:
			how = audit.Released
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

// claimChanged tells who holds when a dead claim ahead is deleted.
func (w *watcher) claimChanged(ev *clientv3.Event) error {
	if ev.Type != clientv3.EventTypeDelete {
		return nil // put with its entry
	}
	w.dead = slices.DeleteFunc(w.dead, func(d DeadClaim) bool { return d.Key == string(ev.Kv.Key) })
	return w.acquired(ev.Kv.ModRevision)
}

// maxEndings bounds the events of one Txn, with two reads each; etcd takes 128.
const maxEndings = 60

// unclaimedEnd is the end of an entry and its session key while no claim stood: its session has given up its lease, or
// the entry never had a claim, and was lost.
const unclaimedEnd audit.Event = "without a claim"

// ask reads the epoch now, and for each deletion whether the claim of the entry stood at that revision, and its session
// key. The key of the entry names the lease under which it was put, so that nothing need be known of the entry: the
// same answer may tell that it has queued.
//
// A claim that stands tells that nothing was released. The session key does not tell it: Close revokes both leases,
// that of the claims first.
func (w *watcher) ask(
	ctx context.Context, events []*clientv3.Event,
) (how []audit.Event, epoch []*mvccpb.KeyValue, err error) {
	how = make([]audit.Event, len(events))
	ops := []clientv3.Op{clientv3.OpGet(names.EpochKey(w.client.namespace))}
	var asked []int
	for i, ev := range events {
		how[i] = audit.Released
		key, rev := string(ev.Kv.Key), clientv3.WithRev(ev.Kv.ModRevision)
		lease, ours := layout.LeaseOf(key)
		if before, known := w.standing[key]; known {
			lease = before.Lease // of the session that has attached it, perhaps
		}
		if ev.Type != clientv3.EventTypeDelete || !ours || w.queue.IsClaim(key) {
			continue
		}
		ops = append(ops, clientv3.OpGet(layout.SessionKey(w.client.namespace, lease), clientv3.WithCountOnly(), rev))
		if !w.blind {
			ops = append(ops, clientv3.OpGet(w.queue.ClaimKey(key), clientv3.WithCountOnly(), rev))
		}
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
	each := 2
	if w.blind {
		each = 1
	}
	for n, i := range asked {
		session := resp.Range(1 + each*n)
		switch {
		case !w.blind && resp.Range(2+each*n).Count > 0:
			how[i] = audit.Lost
		case session.Count == 0:
			how[i] = unclaimedEnd
		}
	}
	return how, resp.Range(0).Kvs, nil
}

// modified tells what was written into an entry: that its holder has released it and it stays, that it was detached or
// attached, or what an administrator asks for.
func (w *watcher) modified(before, now Entry, rev int64) error {
	if before.Detached() != now.Detached() {
		what := audit.Attached
		if now.Detached() {
			what = audit.Detached
		}
		if err := w.tell(Event{What: what, Entry: now, Revision: rev}); err != nil {
			return err
		}
	}
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
		return w.tell(Event{What: audit.Removed, Entry: now, Revision: rev})
	default:
		return w.tell(Event{What: audit.Kicked, Entry: now, Revision: rev})
	}
}

// removed tells that an entry is gone.
func (w *watcher) removed(e Entry, how audit.Event, rev int64) error {
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

// holding returns the entries that hold.
func (w *watcher) holding() []Entry {
	all := inOrder(w.standing)
	return all[:holding(all, w.dead)]
}

func (w *watcher) tell(ev Event) error {
	ev.Waiting = len(w.standing) - len(w.holding())
	if !w.yield(ev, nil) {
		return retry.Final(errLoopLeft)
	}
	return nil
}

func inOrder(entries map[string]Entry) []Entry {
	return slices.SortedFunc(maps.Values(entries), byRevision)
}

func byRevision(a, b Entry) int { return cmp.Compare(a.Revision, b.Revision) }
