package etcdfake

import (
	"bytes"
	"slices"
	"sort"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// store is the multi-version key space. Server.mu protects it.
type store struct {
	rev       int64 // of the last change; an empty store is at 1
	head      int64 // rev, or one more while a write is in progress
	compacted int64 // older revisions cannot be read; -1: never compacted
	keys      map[string][]version
	live      []string // current keys, sorted
	all       []string // keys that ever existed, sorted
	log       []Change // every change, in order
}

// version is the state of a key from a revision on; kv is nil if the key was deleted.
type version struct {
	rev int64
	kv  *mvccpb.KeyValue
}

// A Change is one put or delete.
type Change struct {
	At       time.Time // when it was applied
	Revision int64
	Cause    Cause
	Deleted  bool
	Kv       *mvccpb.KeyValue // of a delete: Key and ModRevision only, as in a watch
	Prev     *mvccpb.KeyValue // before the change; nil: the key did not exist
}

// A Cause is the reason for a Change.
type Cause int

const (
	ByRequest Cause = iota // a client put or deleted the key
	ByExpiry               // the key's lease expired
	ByRevoke               // a client revoked the key's lease
	ByForce                // the test called a method of Server
)

func newStore() store {
	return store{rev: 1, head: 1, compacted: -1, keys: make(map[string][]version)}
}

// span is a key or a range of keys, as requests have it: without an end it is one key, and the end "\x00" means all
// keys from key on.
type span struct{ key, end []byte }

func (s span) single() bool { return len(s.end) == 0 }

func (s span) open() bool { return len(s.end) == 1 && s.end[0] == 0 }

func (s span) contains(key []byte) bool {
	if s.single() {
		return bytes.Equal(key, s.key)
	}
	return bytes.Compare(key, s.key) >= 0 && (s.open() || bytes.Compare(key, s.end) < 0)
}

// within returns the keys, out of a sorted list, that are in the span.
func (s span) within(keys []string) []string {
	from, found := slices.BinarySearch(keys, string(s.key))
	if s.single() {
		if !found {
			return nil
		}
		return keys[from : from+1]
	}
	keys = keys[from:]
	if s.open() {
		return keys
	}
	to, _ := slices.BinarySearch(keys, string(s.end))
	return keys[:to]
}

// at returns the keys that existed in the span at a revision, sorted. The result belongs to the store.
func (s *store) at(in span, rev int64) []*mvccpb.KeyValue {
	keys := s.live
	if rev < s.head {
		keys = s.all
	}
	var kvs []*mvccpb.KeyValue
	for _, key := range in.within(keys) {
		if kv := s.version(key, rev); kv != nil {
			kvs = append(kvs, kv)
		}
	}
	return kvs
}

// version returns a key at a revision; nil if it did not exist.
func (s *store) version(key string, rev int64) *mvccpb.KeyValue {
	versions := s.keys[key]
	i := sort.Search(len(versions), func(i int) bool { return versions[i].rev > rev })
	if i == 0 {
		return nil
	}
	return versions[i-1].kv
}

// write is a transaction. Its changes have one revision, and watches see them after commit.
type write struct {
	*store
	cause   Cause
	changes []Change
	attach  func(key string, from, to int64) // see Server.attach
}

// now returns the revision that reads in the transaction see.
func (w *write) now() int64 {
	if len(w.changes) > 0 {
		return w.rev + 1
	}
	return w.rev
}

func (w *write) put(key, value []byte, lease int64) {
	kv := &mvccpb.KeyValue{
		Key: bytes.Clone(key), Value: bytes.Clone(value), Lease: lease,
		CreateRevision: w.rev + 1, ModRevision: w.rev + 1, Version: 1,
	}
	prev := w.version(string(key), w.rev+1)
	var from int64
	if prev != nil {
		kv.CreateRevision, kv.Version = prev.CreateRevision, prev.Version+1
		from = prev.Lease
	} else {
		insert(&w.live, string(key))
		insert(&w.all, string(key))
	}
	w.attach(string(key), from, lease)
	w.record(Change{Kv: kv, Prev: prev}, kv)
}

// remove deletes the keys in the span, and returns their number.
func (w *write) remove(in span) int64 {
	keys := slices.Clone(in.within(w.live))
	for _, key := range keys {
		prev := w.version(key, w.rev+1)
		i, _ := slices.BinarySearch(w.live, key)
		w.live = slices.Delete(w.live, i, i+1)
		w.attach(key, prev.Lease, 0)
		w.record(Change{Deleted: true, Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: w.rev + 1}, Prev: prev}, nil)
	}
	return int64(len(keys))
}

func (w *write) record(c Change, kv *mvccpb.KeyValue) {
	c.At, c.Revision, c.Cause = time.Now(), w.rev+1, w.cause
	w.changes = append(w.changes, c)
	w.head = c.Revision
	key := string(c.Kv.Key)
	w.keys[key] = append(w.keys[key], version{c.Revision, kv})
}

// insert inserts key into a sorted list, unless it is there.
func insert(keys *[]string, key string) {
	if i, found := slices.BinarySearch(*keys, key); !found {
		*keys = slices.Insert(*keys, i, key)
	}
}

// since returns the changes from a revision on.
func (s *store) since(rev int64) []Change {
	i := sort.Search(len(s.log), func(i int) bool { return s.log[i].Revision >= rev })
	return s.log[i:]
}

// between returns the changes from a revision on, up to another one.
func (s *store) between(from, to int64) []Change {
	all := s.since(from)
	return all[:sort.Search(len(all), func(i int) bool { return all[i].Revision > to })]
}

// clone returns a copy of kv for a client. Its bytes are those of the store, which no put changes: copying them was
// a part of what a large read costs.
func clone(kv *mvccpb.KeyValue) *mvccpb.KeyValue {
	if kv == nil {
		return nil
	}
	return &mvccpb.KeyValue{
		Key: slices.Clip(kv.Key), Value: slices.Clip(kv.Value), Lease: kv.Lease,
		CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version,
	}
}
