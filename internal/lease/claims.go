package lease

import (
	"context"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/retry"
)

// claims is the lease of the claims of a Lease. A claim is a key beside an entry, and outlives it by minutes: a claim
// without its entry tells: the entry went without a release. Each Lease has a lease of claims of its own.
type claims struct {
	mu      sync.Mutex       // protects what follows
	id      clientv3.LeaseID // NoLease: etcd has lost it, and has granted no other yet
	changed chan struct{}    // closed when id changes; nil: not made yet
	doubted bool             // see BlameClaims
}

// Claims returns the lease of the claims; clientv3.NoLease while there is none.
func (l *Lease) Claims() clientv3.LeaseID {
	l.claims.mu.Lock()
	defer l.claims.mu.Unlock()
	return l.claims.id
}

// AwaitClaims waits for the lease of the claims. It returns the *holdfast.LostError when the Lease is lost, and ctx's
// error when ctx ends first.
func (l *Lease) AwaitClaims(ctx context.Context) (clientv3.LeaseID, error) {
	for {
		id, changed := l.ClaimsNow()
		if id != clientv3.NoLease {
			return id, nil
		}
		select {
		case <-changed:
		case <-l.ctx.Done():
			return clientv3.NoLease, l.Lost()
		case <-ctx.Done():
			return clientv3.NoLease, retry.ContextErr(ctx)
		}
	}
}

// ClaimsNow returns the lease of the claims, and a channel: it is closed when the answer changes.
func (l *Lease) ClaimsNow() (id clientv3.LeaseID, changed <-chan struct{}) {
	c := &l.claims
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.id, c.changed
}

// SetClaims records a new lease of the claims.
func (l *Lease) SetClaims(id clientv3.LeaseID) {
	l.claims.mu.Lock()
	defer l.claims.mu.Unlock()
	l.claims.setLocked(id)
}

// LoseClaims records that etcd does not know the lease id. It reports false if another lease has taken its place.
func (l *Lease) LoseClaims(id clientv3.LeaseID) bool {
	c := &l.claims
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id != id {
		return false
	}
	c.setLocked(clientv3.NoLease)
	return true
}

// BlameClaims records that etcd has refused a request about the Lease and the lease id, although the Lease seems to
// stand: so the lease id is gone. It reports false, and changes nothing, if a lease of claims was blamed before and
// etcd has renewed none since: then it is the Lease after all.
func (l *Lease) BlameClaims(id clientv3.LeaseID) bool {
	c := &l.claims
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.id != id:
		return true // blamed already, and another lease follows
	case c.doubted:
		return false
	}
	c.doubted = true
	c.setLocked(clientv3.NoLease)
	return true
}

// ConfirmClaims records that etcd has renewed the lease id.
func (l *Lease) ConfirmClaims(id clientv3.LeaseID) {
	c := &l.claims
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id == id {
		c.doubted = false
	}
}

func (c *claims) setLocked(id clientv3.LeaseID) {
	c.id = id
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}
