package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/internal/watching"
)

// watchReread is the time between two reads that look whether a Watch is behind: they have keys, and no values.
const watchReread = time.Minute

// Watch ranges over the queues of all names of a kind that begin with prefix ("": all): first over those that stand,
// in the order of List, then over each one that has changed, as it is then. One without entries has gone. Entries are
// without Token and TTL, queues without LastRun. Events says of one name what has happened to each entry, and how.
//
// Each call has one watch in etcd. It reads all keys when that has begun, and looks at the keys, without values, once a
// minute. It keeps all entries in memory. Failures of etcd only delay it: changes meanwhile are told as one. What the
// body of the loop does not take piles up in memory.
//
// The sequence ends with an error, one of those of Show, unless the loop is left.
func (c *Client) Watch(ctx context.Context, kind holdfast.Kind, prefix string) iter.Seq2[Queue, error] {
	return func(yield func(Queue, error) bool) {
		if err := c.usable(ctx); err != nil {
			yield(Queue{}, err)
			return
		}
		if err := checkKind(kind); err != nil {
			yield(Queue{}, err)
			return
		}
		f := &followed{
			client: c, kind: kind, root: layout.Names(c.namespace, kind), prefix: prefix, yield: yield,
			told: make(map[string]bool), names: make(map[string]map[string]*mvccpb.KeyValue),
		}
		from := f.root + prefix
		watched := watching.Follower{
			Env: lease.Alone(c.client, c.policy), Streams: new(watching.Streams), From: from,
			Opts: []clientv3.OpOption{clientv3.WithPrefix()}, Every: watchReread, Read: f.read, Hear: f.hear,
		}
		switch err := watched.Follow(ctx); {
		case errors.Is(err, errLoopLeft):
		case ctx.Err() != nil:
			yield(Queue{}, retry.ContextErr(ctx))
		default:
			yield(Queue{}, fmt.Errorf("watch %ss: %w", kind, err))
		}
	}
}

// followed is one call of Watch.
type followed struct {
	client       *Client
	kind         holdfast.Kind
	root, prefix string
	yield        func(Queue, error) bool

	revision int64                                  // all changes up to it are known
	known    bool                                   // it has read all
	told     map[string]bool                        // the names that were told with entries
	names    map[string]map[string]*mvccpb.KeyValue // what stands about each name, by key
}

// nameOf returns the name that a key is about, and false if it is not about one that is followed.
func (f *followed) nameOf(key string) (string, bool) {
	q, ok := layout.About(f.client.namespace, key)
	return q.Name, ok && q.Kind == f.kind && strings.HasPrefix(q.Name, f.prefix)
}

// read looks whether what stands is what is known. If not, it reads all, and tells what has changed.
func (f *followed) read(ctx context.Context) (changed bool, err error) {
	if changed = f.known; changed {
		if same, err := f.same(ctx); same || err != nil {
			return false, err
		}
	}
	now := make(map[string]map[string]*mvccpb.KeyValue)
	var order []string
	revision, err := f.pages(ctx, func(kv *mvccpb.KeyValue) {
		name, ok := f.nameOf(string(kv.Key))
		if !ok {
			return
		}
		if now[name] == nil {
			now[name] = make(map[string]*mvccpb.KeyValue)
			order = append(order, name)
		}
		now[name][string(kv.Key)] = kv
	})
	if err != nil {
		return changed, err
	}
	before := f.names
	f.names, f.revision, f.known = now, revision, true
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if now[name] == nil {
			order = append(order, name)
		}
	}
	for _, name := range order {
		if maps.EqualFunc(before[name], now[name], sameVersion) {
			continue
		}
		if err := f.tell(name); err != nil {
			return changed, err
		}
	}
	return changed, nil
}

func sameVersion(a, b *mvccpb.KeyValue) bool { return a.ModRevision == b.ModRevision }

// same reports whether those keys stand that are known.
func (f *followed) same(ctx context.Context) (bool, error) {
	standing, same := 0, true
	revision, err := f.pages(ctx, func(kv *mvccpb.KeyValue) {
		if name, ok := f.nameOf(string(kv.Key)); ok {
			known := f.names[name][string(kv.Key)]
			standing++
			same = same && known != nil && sameVersion(known, kv)
		}
	}, clientv3.WithKeysOnly())
	for _, keys := range f.names {
		standing -= len(keys)
	}
	if same = same && standing == 0 && err == nil; same {
		f.revision = revision // a smaller one than before if etcd was restored from a backup
	}
	return same, err
}

// pages reads all keys at one revision, which it returns.
func (f *followed) pages(
	ctx context.Context, each func(*mvccpb.KeyValue), opts ...clientv3.OpOption,
) (revision int64, err error) {
	from := f.root + f.prefix
	end := clientv3.GetPrefixRangeEnd(from)
	limit := int64(listPage)
	if f.kind == holdfast.KindElection || f.kind == holdfast.KindShard { // whose entries have values of users
		limit = listPageElections
	}
	for more := true; more; {
		opts := append([]clientv3.OpOption{
			clientv3.WithRange(end), clientv3.WithLimit(limit), clientv3.WithRev(revision),
		}, opts...)
		resp, err := f.client.read(ctx, clientv3.OpGet(from, opts...))
		if errors.Is(err, rpctypes.ErrCompacted) { // between two pages
			err = retry.Again(err)
		}
		if err != nil {
			return 0, err
		}
		page := resp.Range(0)
		for _, kv := range page.Kvs {
			each(kv)
			from = string(kv.Key) + "\x00"
		}
		revision = cmp.Or(revision, resp.Header.Revision)
		more = page.More
	}
	return revision, nil
}

// hear applies events, and tells each name once.
func (f *followed) hear(_ context.Context, events []*clientv3.Event) error {
	var changed []string
	for _, ev := range events {
		key := string(ev.Kv.Key)
		name, ok := f.nameOf(key)
		if !ok || ev.Kv.ModRevision <= f.revision {
			continue
		}
		if ev.Type == clientv3.EventTypeDelete {
			delete(f.names[name], key)
		} else {
			if f.names[name] == nil {
				f.names[name] = make(map[string]*mvccpb.KeyValue)
			}
			f.names[name][key] = ev.Kv
		}
		if !slices.Contains(changed, name) {
			changed = append(changed, name)
		}
	}
	if len(events) > 0 {
		f.revision = max(f.revision, events[len(events)-1].Kv.ModRevision)
	}
	for _, name := range changed {
		if err := f.tell(name); err != nil {
			return err
		}
	}
	return nil
}

// tell tells a queue as it is.
func (f *followed) tell(name string) error {
	q := layout.Named(f.client.namespace, f.kind, name)
	now := Queue{Kind: f.kind, Name: name, Revision: f.revision}
	l := newListing(false)
	for key, kv := range f.names[name] {
		switch {
		case key == q.LimitKey():
			limit, _ := layout.LimitIn(kv)
			now.Limit = limit.Permits
		case q.IsClaim(key):
			l.addClaim(q, kv)
		default:
			l.entries = append(l.entries, q.View(kv))
		}
	}
	if len(f.names[name]) == 0 {
		delete(f.names, name)
	}
	slices.SortFunc(l.entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Key, b.Key))
	})
	l.judge(q)
	now.Entries, now.Dead = l.entries, l.dead
	if len(now.Entries) == 0 && !f.told[name] {
		return nil // there is a limit, or a claim
	}
	f.told[name] = true
	if len(now.Entries) == 0 {
		delete(f.told, name)
	}
	if !f.yield(now, nil) {
		return errLoopLeft
	}
	return nil
}
