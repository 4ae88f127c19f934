package leftovers

import (
	"maps"
	"sync"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// maxFree bounds how many key endings a session keeps for later entries.
const maxFree = 1024

// Keys are the keys of a session's entries. A key belongs to one entry at a time. It is used again only when no request
// that puts it can still be carried out: a late copy could put an entry that looks like the present one.
//
// Keys are used again for speed. etcd remembers a deleted key until it compacts its history, and every read of a prefix
// visits the remembered keys below it. With a new key for each acquisition, an enqueue would take longer the more often
// a lock was used.
type Keys struct {
	mu    sync.Mutex     // protects what follows
	inUse map[string]use // by key: of attempts, and those that the sweeper looks for
	lease *lease.Lease   // that free belongs to
	free  []string       // endings that can be used again
}

// use is by what a key is used.
type use struct {
	entry   Entry
	lease   *lease.Lease // that entry is put with
	refused bool         // the session key was put again meanwhile
}

// NewID returns an ending for the key of an entry of a lease: one that was used before, if there is one.
func (k *Keys) NewID(lease *lease.Lease) string {
	k.mu.Lock()
	if k.lease != lease {
		k.lease, k.free = lease, nil
	}
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

// Register gives a key to e, which is put with a lease. It reports false if the key is in use: by another attempt, by
// the sweeper, or by the scanner, which claims a key before it concludes that no attempt uses it.
func (k *Keys) Register(key string, lease *lease.Lease, e Entry) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.inUse[key].entry != nil {
		return false
	}
	k.inUse[key] = use{entry: e, lease: lease}
	return true
}

// Unregister forgets the entry at a key, which is not used again.
func (k *Keys) Unregister(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.inUse, key)
}

// Recycle forgets the entry at a key, which ends in id, and keeps id for a later one under the same lease. It keeps no
// empty id.
func (k *Keys) Recycle(key, id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	lease := k.inUse[key].lease
	delete(k.inUse, key)
	if k.lease == lease && id != "" && len(k.free) < maxFree {
		k.free = append(k.free, id)
	}
}

// At returns what uses a key, or nil.
func (k *Keys) At(key string) Entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.inUse[key].entry
}

// Of returns the entries of a lease.
func (k *Keys) Of(lease *lease.Lease) []Entry { return k.of(lease, false) }

// of returns the entries of a lease: those whose puts may have been refused, or all.
func (k *Keys) of(lease *lease.Lease, onlyRefused bool) (entries []Entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, u := range k.inUse {
		if u.lease == lease && (u.refused || !onlyRefused) {
			entries = append(entries, u.entry)
		}
	}
	return entries
}

// refuse records that a put of the session key may have refused the puts of all entries of a lease.
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
