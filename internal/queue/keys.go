package queue

import (
	"maps"
	"sync"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// maxFree bounds how many key endings a session keeps for later entries.
const maxFree = 1024

// keys are the keys of a session's entries. A key belongs to one entry at a time. It is used again only when no request
// that puts it can still be carried out: a late copy could put an entry that looks like the present one.
//
// Keys are used again for speed. etcd remembers a deleted key until it compacts its history, and every read of a prefix
// visits the remembered keys below it. With a new key for each acquisition, an enqueue would take longer the more often
// a lock was used.
type keys struct {
	mu    sync.Mutex        // protects what follows
	inUse map[string]*entry // by key: of attempts, and those that the sweeper looks for
	lease *lease.Lease      // that free belongs to
	free  []string          // endings that can be used again
}

// reuse gives e a key with an ending that was used before. It reports false if there
// is none.
func (k *keys) reuse(e *entry) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lease != e.of.lease {
		k.lease, k.free = e.of.lease, nil
	}
	for last := len(k.free) - 1; last >= 0; last-- {
		e.id, k.free = k.free[last], k.free[:last]
		e.key = e.q.key(e.id)
		if k.inUse[e.key] == nil {
			k.inUse[e.key] = e
			return true
		}
	}
	return false
}

// register gives e the key. It reports false if the key is in use: by another
// attempt, by the sweeper, or by the orphan scanner, which claims a key before it
// concludes that no attempt uses it.
func (k *keys) register(e *entry, key string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.inUse[key] != nil {
		return false
	}
	e.key, k.inUse[key] = key, e
	return true
}

// unregister forgets an entry. Its key is not used again.
func (k *keys) unregister(e *entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.inUse, e.key)
}

// recycle forgets an entry and keeps its key for a later one.
func (k *keys) recycle(e *entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.inUse, e.key)
	if k.lease == e.of.lease && e.id != "" && len(k.free) < maxFree {
		k.free = append(k.free, e.id)
	}
}

// taken reports whether MinHold keeps the entry at key, which is not moved yet.
func (k *keys) taken(key string) bool {
	k.mu.Lock()
	e := k.inUse[key]
	k.mu.Unlock()
	return e != nil && e.takenFor() > 0
}

// forget unregisters all entries of a lost lease.
func (k *keys) forget(lease *lease.Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.inUse, func(_ string, e *entry) bool { return e.of.lease == lease })
}

// of returns the entries of a lease.
func (k *keys) of(lease *lease.Lease) []*entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []*entry
	for _, e := range k.inUse {
		if e.of.lease == lease {
			all = append(all, e)
		}
	}
	return all
}
