// Package stale tells a hold that etcd has refused a write of its holder: the
// proof that its entry is gone.
//
// A holder embeds a [Hook] under a name of its own that is not exported. The
// method of Hook is not exported either, so this package alone can call it, and
// users of the holder cannot.
package stale

// Hold is what a refused write ends.
type Hold interface {
	// EndStale ends the hold: its entry is gone.
	EndStale()
}

// Hook connects a holder with its hold.
type Hook struct{ hold Hold }

// NewHook returns the hook of a hold.
func NewHook(h Hold) Hook { return Hook{h} }

func (h Hook) refused() { h.hold.EndStale() }

// Refused ends the hold of a holder, at once. Of a holder without a Hook,
// a user's own for example, it does nothing.
func Refused(holder any) {
	if h, ok := holder.(interface{ refused() }); ok {
		h.refused()
	}
}
