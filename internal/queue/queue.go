package queue

import (
	"context"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/session"
)

// Queue is the line of one name, as seen by one session. It is immutable and
// does no I/O by itself; a Queue with a bad name or without a session says so
// at the first Acquire.
type Queue struct {
	sess    *session.Session
	local   *lines // what the session keeps of its queues
	kind    string // "lock" or "election"
	name    string // as the user gave it
	entries string // entries stand under this prefix; ends in "/"
	voids   string // voids stand under this one
	foreign bool   // other queues' entries may stand under entries
	err     error  // why this queue cannot be used
}

// New returns the queue of a name: entries under NAMESPACE/KIND/NAME/@/, voids
// under NAMESPACE/KIND/NAME/@void/.
func New(sess *session.Session, kind, name string) *Queue {
	q := &Queue{sess: sess, kind: kind, name: name}
	if sess == nil {
		q.err = &session.ArgumentError{Argument: "sess", Reason: "is nil"}
		return q
	}
	q.err, q.local = CheckName(kind, name), linesOf(sess)
	q.entries = entriesPrefix(sess.Namespace(), kind, name, false)
	q.voids = strings.TrimSuffix(q.entries, "/") + "void/"
	return q
}

// At returns the queue of a foreign prefix, as etcd's concurrency package
// takes it: entries under PREFIX/. Every key there counts as an entry, so the
// voids have to stand elsewhere: under NAMESPACE/void/.
func At(sess *session.Session, kind, prefix string) *Queue {
	q := &Queue{sess: sess, kind: kind, name: prefix, foreign: true}
	if sess == nil {
		q.err = &session.ArgumentError{Argument: "sess", Reason: "is nil"}
		return q
	}
	q.err, q.local = checkPrefix(kind, prefix), linesOf(sess)
	q.entries, q.voids = entriesPrefix("", kind, prefix, true), sess.Namespace()+"/void/"
	return q
}

// entriesPrefix is where the entries of a name stand, or of a foreign prefix.
func entriesPrefix(namespace, kind, name string, foreign bool) string {
	if foreign {
		return name + "/"
	}
	return namespace + "/" + kind + "/" + name + "/@/"
}

// errNoQueue: a Mutex{} or an Election{}.
var errNoQueue = &session.ArgumentError{Argument: "receiver", Reason: "is a zero value: make it with one of the constructors, which take a session and a name"}

// Session is the session the queue was made with; nil without one.
func (q *Queue) Session() *session.Session {
	if q == nil {
		return nil
	}
	return q.sess
}

// Name is the name or prefix as it was given.
func (q *Queue) Name() string {
	if q == nil {
		return ""
	}
	return q.name
}

// Err is why the queue cannot be used, or nil.
func (q *Queue) Err() error {
	if q == nil {
		return errNoQueue
	}
	return q.err
}

// Same reports whether two queues are one line: the same entries in the same
// cluster, whatever session asks.
func (q *Queue) Same(other *Queue) bool {
	return q.entries == other.entries && (q.sess == other.sess || q.sess.Base().Cluster() == other.sess.Base().Cluster())
}

// front reads, in one linearizable range, the own entry created at rev and the
// one right ahead of it. Nothing can join the queue ahead of an entry, so the
// answer only ever shrinks.
func (q *Queue) front(rev int64) clientv3.Op {
	return clientv3.OpGet(q.entries, append(lastTwo, clientv3.WithMaxCreateRev(rev))...)
}

// lastTwo selects the two youngest entries. The server sorts the whole prefix
// for it, as it does for every choice by create revision.
var lastTwo = slices.Clip([]clientv3.OpOption{
	clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(2),
	clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend),
})

// occupied reports whether anybody is queued: one read, of a number only.
func (q *Queue) occupied(ctx context.Context) (bool, error) {
	var n int64
	err := q.retry(ctx, func(ctx context.Context) error {
		resp, err := q.sess.Client().Get(ctx, q.entries, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil {
			n = resp.Count
		}
		return err
	})
	return n > 0, err
}
