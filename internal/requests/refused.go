package requests

// Hook connects a fenced writer with the hold it writes for: a write that etcd refuses proves that an entry of the hold
// is gone, so the hold ends at once. A lock or term embeds a Hook under an unexported name. Its methods are unexported,
// too, so users cannot call them.
type Hook struct{ hold hold }

type hold interface {
	// EndStale ends the hold because an entry of it is gone.
	EndStale()
}

// NewHook returns the hook of a hold.
func NewHook(h hold) Hook { return Hook{h} }

func (h Hook) refused() { h.hold.EndStale() }

// Refused ends the hold of a lock or term. It does nothing for other holders, such
// as a user's own.
func Refused(holder any) {
	if h, ok := holder.(interface{ refused() }); ok {
		h.refused()
	}
}
