package fencing

import (
	"reflect"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Source is what a guard at the other end of a write needs: a token, and
// whether there is a point in presenting it. Locks and terms are sources, and a
// [Token] is one itself.
type Source interface {
	// Token returns the fencing token: of a lock or term always the same one,
	// also after it was lost; zero or less if there is none.
	Token() Token

	// Check returns nil while the source may be used, judged at the time of the
	// call, without an RPC. Otherwise its error says why not. An error that Is
	// holdfast.ErrSuspended (and not holdfast.ErrLost) means "not now, maybe
	// later". Any other error is final.
	//
	// A nil result is not a promise: the holder can be lost before the next
	// instruction runs. That is what the token is for.
	Check() error
}

// Holder is a [Source] that holds an entry in etcd: a lock, or the term of an
// elected leader.
type Holder interface {
	Source

	// Client is the etcd client with which the entry was made.
	Client() *clientv3.Client

	// IsOwner is a comparison that is true in an etcd transaction only while
	// the entry is still the one that the holder acquired.
	IsOwner() clientv3.Cmp
}

// isNil also recognises the nil pointer inside an interface, which a program
// gets that goes on with the result of an acquisition that failed.
func isNil(h Holder) bool {
	if h == nil {
		return true
	}
	v := reflect.ValueOf(h)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
