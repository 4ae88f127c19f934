package queue

import (
	"crypto/rand"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/session"
)

// maxFree bounds how many identifiers a session keeps for later.
const maxFree = 1024

// ids are the last parts of the keys of a session's entries. No two entries
// have the same one at the same time, and one is used again only after all that
// was sent for the entry before has been answered.
//
// They are used again because etcd remembers a deleted key until it is
// compacted, and goes through those it remembers in every read of the prefix:
// with new keys, the thousandth acquisition of a name would cost more than the
// first.
type ids struct {
	mu    sync.Mutex // protects what follows
	lease *session.Lease
	free  []string // of lease
}

// take returns an identifier for an entry under a lease.
func (i *ids) take(lease *session.Lease) string {
	if id, ok := i.again(lease); ok {
		return id
	}
	return fmt.Sprintf("%x-%s", int64(lease.ID()), rand.Text()[:16])
}

// again is one that was given back, if there is any.
func (i *ids) again(lease *session.Lease) (id string, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.lease != lease {
		i.lease, i.free = lease, nil
	}
	last := len(i.free) - 1
	if last < 0 {
		return "", false
	}
	id, i.free = i.free[last], i.free[:last]
	return id, true
}

// give takes an identifier back.
func (i *ids) give(lease *session.Lease, id string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.lease == lease && len(i.free) < maxFree {
		i.free = append(i.free, id)
	}
}

// retire is called once the entry stands no more. Its identifier can be used
// again, unless a request may still arrive that would put the entry, or that
// would delete it by its key, as one is deleted whose revision was never told.
func (e *entry) retire() {
	if !e.ambiguous && !e.doubtful && e.id != "" {
		e.q.local.ids.give(e.lease, e.id)
		e.id = "" // given once
	}
}
