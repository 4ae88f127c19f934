// Package leftovers is what unanswered requests of a session may leave in etcd, and how it is removed.
//
// A request without a reply may have been carried out, or may be at any later time.
//
//   - The put of an entry is sent again until it is answered. Its key belongs to one attempt at a time, so a read finds
//     what an earlier copy did. Keys knows the keys in use, and those free to be used again.
//   - The put compares the mod revision of the session key, the gate. When an attempt ends with an unanswered copy, the
//     Sweeper puts the session key again. From then on the copy does nothing. Then the Sweeper has the entry removed,
//     if it stands.
//   - A replaced KV, such as that of etcd's package namespace, repeats a put by itself. Its first copy may pass the
//     gate after the entry was released, and the name would stay taken. The Scanner lists the keys of the lease, and
//     hands entries without an attempt to the Sweeper. Row 53 of docs/guarantees.md needs it. The session's own KV does
//     not repeat a Txn.
//   - Whatever is missed expires with the lease.
package leftovers

import (
	"maps"
	"sync"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// New returns what a session needs, once. It does no I/O. orphan makes a Suspect of a key without an attempt.
func New(
	host lease.Host, orphan func(at layout.Queue, key string, l *lease.Lease) *Suspect,
) (*Keys, *Sweeper, *Scanner) {
	keys := &Keys{inUse: make(map[string]use)}
	sweeper := &Sweeper{host: host, keys: keys, suspects: make(map[*Suspect]bool)}
	return keys, sweeper, &Scanner{
		host: host, keys: keys, sweeper: sweeper, orphan: orphan,
		foreign: make(map[string]layout.Queue),
	}
}

// maxFree bounds how many key endings a session keeps for later entries.
const maxFree = 1024

// Keys are the keys of a session's entries. A key belongs to one entry at a time. It is used again only when no request
// to put it can still be carried out: the entry of a late copy would look like the present one.
type Keys struct {
	mu    sync.Mutex     // protects what follows
	inUse map[string]use // by key: of attempts, and of the sweeper's suspects
	lease *lease.Lease   // whose endings free has
	free  []string       // endings to use again
}

// Entry is what uses a key.
type Entry interface {
	// InFlight reports whether the entry is about to be put: its attempt has neither its place nor ended.
	InFlight() bool
}

// use is by what a key is used.
type use struct {
	entry   Entry
	lease   *lease.Lease // of entry
	refused bool         // the session key was put again meanwhile
}

// NewID returns an ending for the key of an entry of a lease: a used one, if there is one.
func (k *Keys) NewID(lease *lease.Lease) string {
	k.mu.Lock()
	if k.lease != lease {
		k.lease, k.free = lease, nil
	}
	// etcd remembers a deleted key until it compacts its history, and every read of a prefix visits the remembered keys
	// below it. With a new key for each acquisition, a put would take longer the more often a lock was used.
	id := ""
	if last := len(k.free) - 1; last >= 0 {
		id, k.free = k.free[last], k.free[:last]
	}
	k.mu.Unlock()
	if id == "" {
		id = layout.NewID(lease.ID())
	}
	return id
}

// Register gives a key to e, an entry of a lease. It reports false if the key is in use: by another attempt, by the
// sweeper, or by the scanner between its two lists.
func (k *Keys) Register(key string, lease *lease.Lease, e Entry) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.inUse[key].entry != nil {
		return false
	}
	k.inUse[key] = use{entry: e, lease: lease}
	return true
}

// Unregister forgets the entry at a key. The key isn't used again.
func (k *Keys) Unregister(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.inUse, key)
}

// Recycle forgets the entry at a key, and keeps its ending, id, for a later entry of the same lease; unless id is
// empty.
func (k *Keys) Recycle(key, id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	lease := k.inUse[key].lease
	delete(k.inUse, key)
	if k.lease == lease && id != "" && len(k.free) < maxFree {
		k.free = append(k.free, id)
	}
}

// Of returns the entries of a lease: those whose puts may have been refused, or all.
func (k *Keys) Of(lease *lease.Lease, onlyRefused bool) (entries []Entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, u := range k.inUse {
		if u.lease == lease && (u.refused || !onlyRefused) {
			entries = append(entries, u.entry)
		}
	}
	return entries
}

// refuse records a put of the session key: it may have refused the puts of all entries of a lease.
func (k *Keys) refuse(lease *lease.Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, u := range k.inUse {
		if u.lease == lease {
			u.refused = true
			k.inUse[key] = u
		}
	}
}

// Forget unregisters all entries of a lost lease.
func (k *Keys) Forget(lease *lease.Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.inUse, func(_ string, u use) bool { return u.lease == lease })
}

// InUse returns how many keys are in use, for tests.
func (k *Keys) InUse() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.inUse)
}
