package admin

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
)

// Summary is one name with entries.
type Summary struct {
	Kind    holdfast.Kind
	Name    string
	Holder  Entry // the oldest; without Token and TTL, see Show
	Held    bool  // false: Holder waits for the claim of one that went without a release, see DeadClaim
	Waiting int   // entries that do not hold
}

// tally counts the entries of one name, which come in any order.
type tally struct {
	queue   layout.Keyspace
	entries []Entry // of a semaphore
	count   int
	oldest  Entry
	writer  int64          // create revision of the oldest writer's entry; 0: there is none
	readers map[int64]bool // create revisions of the readers' entries
	revs    map[int64]bool // those of all entries
	dead    []DeadClaim
}

// add counts an entry. The keys of readers come first: one that a writer has as well, of the same create revision, is
// that of a lock that can be downgraded.
func (t *tally) add(e Entry) {
	if t.queue.Kind == holdfast.KindSemaphore {
		t.entries = append(t.entries, e)
		e.Weight = 0 // only Show tells it
	}
	if t.count++; t.count == 1 || e.Revision < t.oldest.Revision || e.Revision == t.oldest.Revision && !e.Shared {
		t.oldest = e
	}
	t.revs[e.Revision] = true
	switch {
	case e.Shared:
		t.readers[e.Revision] = true
		return
	case t.readers[e.Revision]:
		delete(t.readers, e.Revision)
		t.count--
	}
	if t.writer == 0 || e.Revision < t.writer {
		t.writer = e.Revision
	}
}

func (t *tally) summary(kind holdfast.Kind) Summary {
	if kind == holdfast.KindSemaphore {
		slices.SortFunc(t.entries, func(a, b Entry) int { return cmp.Compare(a.Revision, b.Revision) })
		waiting := Queue{Kind: kind, Entries: t.entries}.Waiting()
		return Summary{Kind: kind, Name: t.queue.Name, Holder: t.oldest, Held: waiting < len(t.entries), Waiting: waiting}
	}
	waits := func(e Entry) bool { return slices.ContainsFunc(t.dead, func(d DeadClaim) bool { return d.delays(e) }) }
	holding := 0
	for rev := range t.readers {
		if (t.writer == 0 || rev < t.writer) && !waits(Entry{Revision: rev, Shared: true}) {
			holding++
		}
	}
	held := !waits(t.oldest)
	if held {
		holding = max(1, holding)
	}
	return Summary{Kind: kind, Name: t.queue.Name, Holder: t.oldest, Held: held, Waiting: t.count - holding}
}

// addClaim adds a claim. It comes behind all entries. One whose entry stands has the create revision of that.
func (t *tally) addClaim(kv *mvccpb.KeyValue) {
	if !t.revs[kv.CreateRevision] {
		t.dead = append(t.dead, deadClaim(t.queue, kv))
	}
}

// listPage bounds the keys of one read, and with them the memory of a List: two MiB, as an entry of a lock has about
// 400 bytes. etcd counts all keys up to the end of the range for each page, so that smaller pages are slower: 100,000
// names took 5.1 s in pages of 500 and 1.5 s in pages of 5000. A candidate's value has up to 128 KiB.
const (
	listPage          = 5000
	listPageElections = 200
)

// List ranges over the names of a kind that begin with prefix ("": all) and have entries. They come in
// the order of their keys in etcd, NAME/@/…: names below one segment stand together, but a name is not
// always ahead of those that it begins ("a-b" and "a/1" come before "a", "a/b" after it). Sort what is
// shown to people. It reads pages of at most 5000 entries, each at its own revision: a queue that
// changes meanwhile may be shown partly as it was before and partly as it is. etcd counts all that are
// left for each page: list with a prefix where you can.
//
//	for s, err := range c.List(ctx, holdfast.KindLock, "billing/") {
//		if err != nil {
//			return err
//		}
//		…
//	}
//
// An error is the last element: one of those of Show, with a zero Summary. Without one, the list is
// complete.
func (c *Client) List(ctx context.Context, kind holdfast.Kind, prefix string) iter.Seq2[Summary, error] {
	return func(yield func(Summary, error) bool) {
		if err := c.usable(ctx); err != nil {
			yield(Summary{}, err)
			return
		}
		if err := checkKind(kind); err != nil {
			yield(Summary{}, err)
			return
		}
		root := layout.Names(c.namespace, kind)
		var t tally // of the name whose entries are being read
		page := int64(listPage)
		if kind == holdfast.KindElection || kind == holdfast.KindShard { // whose entries have values of users
			page = listPageElections
		}
		for kv, err := range c.pages(ctx, root+prefix, page) {
			if err != nil {
				yield(Summary{}, fmt.Errorf("list %ss: %w", kind, err))
				return
			}
			if t.count > 0 && t.queue.IsClaim(string(kv.Key)) {
				t.addClaim(kv)
				continue
			}
			q, ok := layout.Of(c.namespace, string(kv.Key))
			if !ok || !strings.HasPrefix(q.Name, prefix) {
				continue // not an entry of ours, or, for "a/", one of the name "a"
			}
			if q != t.queue {
				if t.count > 0 && !yield(t.summary(kind), nil) {
					return
				}
				t = tally{queue: q, readers: make(map[int64]bool), revs: make(map[int64]bool)}
			}
			t.add(q.View(kv))
		}
		if t.count > 0 {
			yield(t.summary(kind), nil)
		}
	}
}

// Session is a living session, as it has announced itself.
type Session struct {
	Owner    string
	Host     string
	PID      int
	Lease    clientv3.LeaseID
	Revision int64 // the create revision of its session key: the order in which the sessions began
}

// Sessions ranges over the sessions of the namespace, in the order of their leases as text. It reads
// like List, and an error is the last element. A session's key goes at its Close, or up to its TTL
// after its process has died.
func (c *Client) Sessions(ctx context.Context) iter.Seq2[Session, error] {
	return func(yield func(Session, error) bool) {
		if err := c.usable(ctx); err != nil {
			yield(Session{}, err)
			return
		}
		for kv, err := range c.pages(ctx, layout.SessionKeys(c.namespace), listPage) {
			if err != nil {
				yield(Session{}, fmt.Errorf("list sessions: %w", err))
				return
			}
			s := Session{Lease: clientv3.LeaseID(kv.Lease), Revision: kv.CreateRevision}
			who := layout.DecodeIdentity(kv.Value)
			s.Owner, s.Host, s.PID = who.Owner, who.Host, who.PID
			if !yield(s, nil) {
				return
			}
		}
	}
}

// pages ranges over the keys with a prefix, in order of their bytes, a page at a time. An error ends it.
func (c *Client) pages(ctx context.Context, prefix string, limit int64) iter.Seq2[*mvccpb.KeyValue, error] {
	return func(yield func(*mvccpb.KeyValue, error) bool) {
		end := clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix))
		for from, more := prefix, true; more; {
			resp, err := c.read(ctx, clientv3.OpGet(from, end, clientv3.WithLimit(limit)))
			if err != nil {
				yield(nil, err)
				return
			}
			page := resp.Range(0)
			for _, kv := range page.Kvs {
				if !yield(kv, nil) {
					return
				}
				from = string(kv.Key) + "\x00"
			}
			more = page.More
		}
	}
}
