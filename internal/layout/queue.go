package layout

import (
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
)

// Queue says where the entries of one name stand.
type Queue struct {
	Kind    holdfast.Kind
	Name    string // as it was given: a name, or a foreign prefix
	Entries string // what the keys of all entries begin with; ends in "/"
	Foreign bool   // every key below Entries counts as an entry, as with etcd's concurrency package
}

// Kinds are the kinds of names that have a queue.
var Kinds = []holdfast.Kind{
	holdfast.KindLock, holdfast.KindTree, holdfast.KindSemaphore, holdfast.KindElection, holdfast.KindShard,
}

const (
	endOfName = "/@" // begins what follows a name in a key; no segment of a name begins with "@"

	// readerMark begins the last part of a reader's key, and afterReaders is the first string that sorts behind all
	// that begin with it. So the readers of a queue stand before all other entries, and the entries that a reader
	// waits for are one range.
	readerMark   = "!s"
	afterReaders = "\""
)

// Named returns the queue of a name: see names.Check.
func Named(namespace string, kind holdfast.Kind, name string) Queue {
	return Queue{Kind: kind, Name: name, Entries: Names(namespace, kind) + name + endOfName + "/"}
}

// At returns the queue of a foreign prefix: see names.CheckPrefix.
func At(kind holdfast.Kind, prefix string) Queue {
	return Queue{Kind: kind, Name: prefix, Entries: prefix + "/", Foreign: true}
}

// Names is what the keys of all names of a kind begin with.
func Names(namespace string, kind holdfast.Kind) string { return namespace + "/" + segment(kind) + "/" }

// segment says in keys what the name is of.
func segment(kind holdfast.Kind) string {
	if kind == holdfast.KindSemaphore {
		return "sem"
	}
	return string(kind)
}

// Of returns the queue in a namespace that a key is an entry of, and false if it is not below a name.
func Of(namespace, key string) (Queue, bool) {
	rest, found := strings.CutPrefix(key, namespace+"/")
	first, rest, _ := strings.Cut(rest, "/")
	i := slices.IndexFunc(Kinds, func(kind holdfast.Kind) bool { return segment(kind) == first })
	name, _, isEntry := strings.Cut(rest, endOfName+"/")
	if !found || !isEntry || i < 0 {
		return Queue{}, false
	}
	return Named(namespace, Kinds[i], name), true
}

// Check returns why the queue cannot be used, or nil: a *holdfast.NameError.
func (q Queue) Check() error {
	if q.Foreign {
		return names.CheckPrefix(q.Kind, q.Name)
	}
	return names.Check(q.Kind, q.Name)
}

// String names the queue for people.
func (q Queue) String() string { return string(q.Kind) + " " + names.Quote(q.Name) }

// Verbatim reports whether the value of an entry is the candidate's data and nothing
// else, because etcd's own observers read it. (etcd's own locks have empty values and
// ignore those of others.)
func (q Queue) Verbatim() bool { return q.Foreign && q.Kind == holdfast.KindElection }

// TakesNotices reports whether holders look for notices: where the value of an entry has a place for them.
func (q Queue) TakesNotices() bool { return !q.Verbatim() }

// Own is what all keys of a name begin with: those of its entries and of what stands beside them.
func (q Queue) Own() string { return strings.TrimSuffix(q.Entries, "/") }

// LimitKey is the key of a semaphore's limit. It sorts behind all entries.
func (q Queue) LimitKey() string { return q.Own() + "limit" }

// RunKey is the key of the last run of a job. It is no entry, and there is none below a foreign prefix.
func (q Queue) RunKey() string { return q.Own() + "run" }

// All returns the range of all entries.
func (q Queue) All() (from, end string) { return q.Entries, clientv3.GetPrefixRangeEnd(q.Entries) }

// Readers returns the range of the readers' entries.
func (q Queue) Readers() (from, end string) { return q.Entries + readerMark, q.Entries + afterReaders }

// Writers returns the range of all other entries.
func (q Queue) Writers() (from, end string) {
	return q.Entries + afterReaders, clientv3.GetPrefixRangeEnd(q.Entries)
}

// ReadersOn returns the range of the readers' entries that were put under a lease.
func (q Queue) ReadersOn(lease clientv3.LeaseID) (from, end string) {
	return on(q.Entries+readerMark, lease)
}

// WritersOn returns the range of the entries of ours that were put under a lease and are not readers'.
func (q Queue) WritersOn(lease clientv3.LeaseID) (from, end string) { return on(q.Entries, lease) }

func on(prefix string, lease clientv3.LeaseID) (from, end string) {
	from = fmt.Sprintf("%s%x-", prefix, int64(lease))
	return from, clientv3.GetPrefixRangeEnd(from)
}
