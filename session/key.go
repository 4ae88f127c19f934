package session

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// The session key of a lease stands as long as the lease does. Its watch tells
// the session at once when the lease is revoked; a comparison with its mod
// revision, the gate, stops requests that arrive late; and its absence shows
// others that an entry went together with its lease.

// SessionKey is the session key of the lease with that ID.
func (b Base) SessionKey(id clientv3.LeaseID) string {
	return fmt.Sprintf("%s/session/%x", b.s.opts.Namespace, int64(id))
}

// LockDelay is how long a waiter waits when the entry ahead of it went together
// with its lease.
func (b Base) LockDelay() time.Duration { return b.s.opts.LockDelay }

// Gate is the mod revision of the lease's session key, as last known.
func (l *Lease) Gate() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gate
}

// SawGate notes a mod revision of the session key. It only grows.
func (l *Lease) SawGate(rev int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate = max(l.gate, rev)
}

// PutSessionKey puts the session key of l again, and returns the new gate: every
// request that compares an older one fails from then on.
func (b Base) PutSessionKey(ctx context.Context, l *Lease) (int64, error) {
	resp, err := b.s.client.Put(ctx, b.SessionKey(l.id), "", clientv3.WithLease(l.id))
	if err != nil {
		return 0, err
	}
	l.SawGate(resp.Header.Revision)
	return resp.Header.Revision, nil
}
