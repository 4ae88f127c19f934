// Package stale connects a fenced writer with the hold it writes for. A write compares
// all entries of the hold, of which a set of locks has several. One that etcd refuses
// proves that an entry is gone, so the hold ends at once.
//
// A lock or term embeds a [Hook] under an unexported name. The hook's methods are
// unexported too, so that only this package can call them and users cannot.
package stale

import clientv3 "go.etcd.io/etcd/client/v3"

// Hook ends a hold when a write of its holder is refused.
type Hook struct{ hold hold }

type hold interface {
	// EndStale ends the hold because an entry of it is gone.
	EndStale()
	// Owned returns comparisons that are true while all entries of the hold exist.
	Owned() []clientv3.Cmp
}

// NewHook returns the hook of a hold.
func NewHook(h hold) Hook { return Hook{h} }

func (h Hook) refused() { h.hold.EndStale() }

func (h Hook) owned() []clientv3.Cmp { return h.hold.Owned() }

// Refused ends the hold of a lock or term. It does nothing for other holders, such
// as a user's own.
func Refused(holder any) {
	if h, ok := holder.(interface{ refused() }); ok {
		h.refused()
	}
}

// Owned returns comparisons that are true while all entries of a lock or term exist,
// that of the holder first. It returns nil for other holders.
func Owned(holder any) []clientv3.Cmp {
	if h, ok := holder.(interface{ owned() []clientv3.Cmp }); ok {
		return h.owned()
	}
	return nil
}
