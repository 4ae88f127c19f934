package fencing

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
)

// Source provides a token, and tells whether using it makes sense now.
type Source interface {
	// Token returns the fencing token. It is the same for the life of the source,
	// also after a loss, and zero or less if there is none.
	Token() holdfast.Token

	// Check returns nil if the source may be used now, without an RPC. An error
	// that Is holdfast.ErrSuspended, and not holdfast.ErrLost, means "not now,
	// perhaps later". Any other error is final.
	//
	// nil is no promise: the holder can lose its lock right after.
	Check() error
}

// Holder is a [Source] with an entry in etcd: a lock, or the term of a leader.
type Holder interface {
	Source
	Hold
}

// Hold is what has an entry in etcd, and perhaps no token: a [Holder], or a reader's locker.ReadLock.
type Hold interface {
	// Check is that of [Source].
	Check() error

	// Name returns the name of the lock or election. Tokens are ordered by name.
	Name() string

	// Client returns the etcd client of the entry.
	Client() *clientv3.Client

	// Holding returns comparisons for an etcd transaction, at least one. They are all true only while it is held: while
	// its entry exists, and those of all locks that were acquired together with it.
	Holding() []clientv3.Cmp
}

// A bare token is a source, for a holder elsewhere.
var _ Source = holdfast.Token(0)
