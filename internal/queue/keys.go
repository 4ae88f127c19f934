package queue

import (
	"crypto/rand"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// maxFree bounds how many identifiers a session keeps for later.
const maxFree = 1024

// idNonce is the length of the random part of an identifier.
const idNonce = 16

// isNonce reports whether s has the form of what rand.Text returns.
func isNonce(s string) bool {
	return len(s) == idNonce && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// keys knows which keys the entries of a session have. No two entries have the
// same key at the same time, and a key is used again only when no request that
// puts it can arrive any more.
//
// Keys are used again because etcd remembers a deleted key until it is
// compacted, and goes through those it remembers in every read of the prefix:
// with new keys, the thousandth acquisition of a name would cost more than the
// first.
type keys struct {
	mu    sync.Mutex // protects what follows
	lease *lease.Lease
	free  []string          // identifiers of lease that can be used again
	inUse map[string]*entry // by key: attempts that are not over, and what the sweeper looks for
}

// take returns an identifier for an entry under a lease.
func (k *keys) take(lease *lease.Lease) string {
	if id := k.recycled(lease); id != "" {
		return id
	}
	return fmt.Sprintf("%x-%s", int64(lease.ID()), rand.Text()[:idNonce])
}

// recycled returns an identifier that was used before, or "".
func (k *keys) recycled(lease *lease.Lease) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lease != lease {
		k.lease, k.free = lease, nil
	}
	last := len(k.free) - 1
	if last < 0 {
		return ""
	}
	id := k.free[last]
	k.free = k.free[:last]
	return id
}

// register notes the key of an entry as in use. It reports false if it was
// already, by an attempt, or by the sweeper or the census, which look for what
// stands there.
func (k *keys) register(e *entry) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.inUse == nil {
		k.inUse = make(map[string]*entry)
	}
	if k.inUse[e.key] != nil {
		return false
	}
	k.inUse[e.key] = e
	return true
}

// unregister forgets an entry, whose key is not used again.
func (k *keys) unregister(e *entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.inUse, e.key)
}

// recycle forgets an entry, whose key can be used again.
func (k *keys) recycle(e *entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.inUse, e.key)
	if k.lease == e.lease && e.id != "" && len(k.free) < maxFree {
		k.free = append(k.free, e.id)
	}
}

// forget unregisters the entries of a lease that is lost.
func (k *keys) forget(lease *lease.Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.inUse, func(_ string, e *entry) bool { return e.lease == lease })
}

// under returns the entries of a lease.
func (k *keys) under(lease *lease.Lease) []*entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []*entry
	for _, e := range k.inUse {
		if e.lease == lease {
			all = append(all, e)
		}
	}
	return all
}
