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

	// Check reports, without an RPC, whether the source may be used now: also right after a pause of the process. It
	// returns one of
	//
	//   - nil. That is no promise: time passes between a Check and your next line, and only a fence closes that gap.
	//   - an error that Is holdfast.ErrSuspended, and not holdfast.ErrLost: not now, perhaps later. Stop side effects.
	//   - any other error, which is final: of a lock, a term or a shard a *holdfast.LostError or holdfast.ErrReleased.
	Check() error
}

// Holder is a [Source] with an entry in etcd: a lock, the term of a leader, or a shard.
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

	// Holding returns comparisons for an etcd transaction, at least one. They are all true only while its entry exists,
	// and those of all locks that were acquired together with it. So they are true during the hold, and may stay true
	// after it: until MinHold has passed, until the entry of a removed holder goes, and after a Detach also while another
	// process goes on with the hold. Ask Check before you send the transaction.
	Holding() []clientv3.Cmp
}

// A bare token is a source, for a holder elsewhere.
var _ Source = holdfast.Token(0)
