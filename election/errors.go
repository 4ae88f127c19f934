package election

import (
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
)

var (
	// ErrNoLeader is returned by Leader when no candidate leads.
	ErrNoLeader = errors.New("the election has no leader")

	// ErrNotDrained: a function has not returned within Options.DrainTimeout of the end of its context. It is
	// still running, without its term; only fencing stops its writes.
	ErrNotDrained = errors.New("the function has not returned after its term ended")
)

// CheckName returns nil, or a *holdfast.NameError if name cannot name an election. A name is one or more non-empty
// segments joined by "/", none starting with "@", at most 512 bytes. Campaign checks too, before it sends anything.
func CheckName(name string) error { return names.Check(holdfast.KindElection, name) }
