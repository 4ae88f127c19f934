package leftovers

import (
	"log/slog"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// Entry is what uses a key.
type Entry interface {
	// InFlight reports whether the entry is about to be put: its attempt has neither its place nor ended.
	InFlight() bool
}

// Suspect is an Entry that may stand or appear although its attempt has ended.
type Suspect interface {
	Entry
	// Key is the key by which Keys knows the entry. It does not change.
	Key() string
	// Keys are the keys at which it may stand, each followed by that of its claim. It stands at one of them at most.
	Keys() []string
	// Lease is the lease that the entry is put with.
	Lease() *lease.Lease
	// UnansweredAt is the gate of the latest unanswered copy of the put; 0 if all were answered.
	UnansweredAt() int64
	// Kept is the create revision of the entry if MinHold keeps it at its key; otherwise 0.
	Kept() int64
	// RemoveFound has the session remove what was found, an entry or its claim, by its create revision. The sweeper has
	// unregistered the Suspect before.
	RemoveFound(kv *mvccpb.KeyValue)
	// Log is the session's logger with what identifies the entry.
	Log() *slog.Logger
}

// New returns what a session needs, once. It does no I/O. orphan makes a Suspect of a key in a queue that no attempt
// accounts for.
func New(
	host lease.Host, orphan func(at layout.Queue, key string, l *lease.Lease) Suspect,
) (*Keys, *Sweeper, *Scanner) {
	keys := &Keys{inUse: make(map[string]use)}
	sweeper := &Sweeper{host: host, keys: keys, suspects: make(map[Suspect]bool)}
	return keys, sweeper, &Scanner{
		host: host, keys: keys, sweeper: sweeper, orphan: orphan,
		foreign: make(map[string]layout.Queue),
	}
}
