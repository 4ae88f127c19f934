package hold

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/queue"
)

// heldEntry is what a hold holds: an entry from the queue, and what is known of its value.
type heldEntry struct {
	grant *queue.Grant
	host  *lease.Host

	notedMu  sync.Mutex   // of those who write what follows
	modified atomic.Int64 // the newest mod revision whose value is known; 0: the create revision
}

// Token is the fencing token of the hold.
func (e *heldEntry) Token() holdfast.Token { return e.grant.Token }

// AcquiredRevision is the store's revision at the read that showed the entry at the front.
func (e *heldEntry) AcquiredRevision() int64 { return e.grant.AcquiredRevision }

// Lease is the ID of the entry's lease.
func (e *heldEntry) Lease() clientv3.LeaseID { return e.grant.Lease.ID() }

// Key is the entry's key in etcd.
func (e *heldEntry) Key() string { return e.grant.Key }

// Created is the entry's create revision.
func (e *heldEntry) Created() int64 { return e.grant.Created }

// Client is the session's client.
func (e *heldEntry) Client() *clientv3.Client { return e.host.Client }

// Queue is the queue whose front the hold is.
func (e *heldEntry) Queue() *queue.Queue { return e.grant.Queue }

// known is the newest mod revision of the entry whose value is known.
func (e *heldEntry) known() int64 { return max(e.modified.Load(), e.Created()) }

// noteModified records a mod revision of the entry, unless a later one is known.
func (e *heldEntry) noteModified(rev int64) {
	e.notedMu.Lock()
	defer e.notedMu.Unlock()
	e.modified.Store(max(e.modified.Load(), rev)) // replies come in any order
}

// unchanged is true in a Txn as long as the entry stands with the known value.
func (e *heldEntry) unchanged() clientv3.Cmp {
	return e.unmodifiedSince(e.known())
}

// unmodifiedSince is true in a Txn as long as the entry stands with the value put at mod.
func (e *heldEntry) unmodifiedSince(mod int64) clientv3.Cmp {
	// The create revision need not be compared: a key that is deleted and put again has another mod revision, too.
	return clientv3.Compare(clientv3.ModRevision(e.Key()), "=", mod)
}

// value returns the entry's value as it was put, if it has our form.
func (e *heldEntry) value() (v layout.Value, ours bool) {
	if e.Queue().Layout().Verbatim {
		return v, false
	}
	return layout.DecodeValue([]byte(e.grant.Value))
}

// heldValue returns the value of an entry that is held since then, with new data: data alone, if the entry's value does
// not have our form.
func (e *heldEntry) heldValue(since time.Time, data string) string {
	v, ours := e.value()
	if !ours {
		return data
	}
	v.Held, v.Data = since, data
	return v.Encode()
}

// maxHolder bounds what a record says of the holder, in bytes.
const maxHolder = 256

// holder is what a record says of the holder.
func (e *heldEntry) holder() string {
	holder := e.grant.Value
	if v, ours := e.value(); ours {
		holder = v.Holder()
	}
	return strings.ToValidUTF8(holder[:min(len(holder), maxHolder)], "")
}

// tokenText names the token for the text of an error. A reader has none.
func (e *heldEntry) tokenText() string {
	if e.Token() == 0 {
		return ""
	}
	return fmt.Sprintf("token %d, ", e.Token())
}
