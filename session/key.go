package session

import (
	"cmp"
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
)

// sessionKey is the session key of one lease, and stands as long as the lease. It has three uses. Its watches report a
// revoked lease at once. Txns compare its mod revision, the gate, so late requests fail. And its absence tells other
// clients: this entry was deleted together with its lease.
type sessionKey struct {
	*env
	lease *lease.Lease
	name  string
}

func (e *env) keyOf(l *lease.Lease) sessionKey { return sessionKey{e, l, l.Key()} }

// put puts the key. The reply has the new gate, the key's mod revision. A copy does no harm: it only moves the gate
// once more. kind says how soon a copy is sent: the first put is repeated like the Grant before it, a later put as soon
// as a read, since restore has a quarter of the lock delay.
func (k sessionKey) put(ctx context.Context, kind requests.Kind) (putReply, error) {
	resp, _, err := requests.Once(ctx, k.Sender, kind, func(ctx context.Context) (putReply, error) {
		sent := k.lease.Sends(lease.Reads)
		resp, err := k.Client.Put(ctx, k.name, k.Identity.Encode(), clientv3.WithLease(k.lease.ID()))
		return putReply{resp, sent}, err
	})
	if err != nil {
		return putReply{}, fmt.Errorf("put session key %q: %w", k.name, err)
	}
	k.lease.NoteGate(resp.Header.Revision)
	return resp, nil
}

// putReply is the reply to a put of the session key.
type putReply struct {
	*clientv3.PutResponse
	sent time.Duration // by the session's clock
}

// read sends a linearizable read. It serves as the proof of renewals as well.
func (k sessionKey) read(ctx context.Context) (*clientv3.GetResponse, error) {
	resp, err := k.Sender.Read(ctx, clientv3.OpGet(k.name))
	if err != nil {
		return nil, fmt.Errorf("read session key %q: %w", k.name, err)
	}
	return resp, nil
}

// readWith reads the key, and runs an errand with the same request, unless that is nil.
func (k sessionKey) readWith(ctx context.Context, errand *lease.Errand) (keyRead, error) {
	sent := k.lease.Sends(lease.Reads)
	if errand != nil {
		key := []clientv3.Op{clientv3.OpGet(k.name)}
		resp, err := k.Sender.Txn(ctx).If(errand.If...).Then(key...).Else(key...).Commit()
		if err == nil {
			read := &clientv3.GetResponse{Header: resp.Header, Kvs: resp.Responses[0].GetResponseRange().Kvs}
			return keyRead{read, sent, true, resp.Succeeded}, nil
		}
		// etcd may refuse the errand. A lease must not be lost because a role lacks a right to what is held on it.
	}
	read, err := k.read(ctx)
	return keyRead{GetResponse: read, sent: sent}, err
}

// keyRead is the reply to a read of the session key.
type keyRead struct {
	*clientv3.GetResponse
	sent      time.Duration // by the session's clock
	told, yes bool          // of an errand: etcd has replied to it; its comparisons were true
}

// isIn reports whether a read shows the key, attached to the lease.
func (k sessionKey) isIn(read *clientv3.GetResponse) bool {
	return len(read.Kvs) == 1 && read.Kvs[0].Lease == int64(k.lease.ID())
}

// check restores the key unless read shows it. Its error says why the key could not be restored.
func (k sessionKey) check(read *clientv3.GetResponse) error {
	switch {
	case read.Header.ClusterId != k.lease.Cluster(): // first: its keys say nothing of this lease
		return k.lease.Lose(holdfast.CauseClusterChanged, nil)
	case k.isIn(read):
		return nil
	}
	return k.restore(read.Header.Revision)
}

// restore puts the key again: it did not exist at revision seen. If it was deleted by hand, the put succeeds and
// nothing is lost. If the lease was revoked, etcd refuses the put.
func (k sessionKey) restore(seen int64) error {
	if k.lease.Gate() > seen {
		return nil // it was put again in the meantime
	}
	// Without a reply the lease is given up in time for its holders to stop. For example, with a lock delay of 2 s:
	//
	//	0 s    the key goes. If the lease was revoked, a waiter sees it now and may hold at 2 s
	//	0.1 s  the watch tells it, and the put is sent
	//	0.6 s  no reply yet. The lease is given up, and its holders have 1.4 s to stop
	within := k.patience()
	ctx, cancel := context.WithTimeout(k.lease.Context(), within)
	defer cancel()
	err := backoff.Retry(ctx, k.Retry, func(ctx context.Context) error {
		_, err := k.put(ctx, requests.Read)
		return err
	})
	switch {
	case err == nil:
		k.Logger.Warn("holdfast: session key was deleted, or detached from its lease, by another client; "+
			"it was put again and nothing is lost", "key", k.name)
		return nil
	case etcderr.Classify(err) == etcderr.LeaseGone:
		return k.lease.Lose(holdfast.CauseRevoked, err)
	case ctx.Err() != nil: // little else deletes the key
		return k.lease.Lose(holdfast.CauseRevoked,
			fmt.Errorf("its session key is gone, and for %v etcd did not say whether the lease exists: %w", within, err))
	default:
		return k.lease.Lose(holdfast.CauseKeyDeleted, err)
	}
}

// patience is how long the session waits for etcd when it seems to have lost its lease: its holders stop after that,
// and before others hold.
func (k sessionKey) patience() time.Duration { return cmp.Or(k.LockDelay, defaultLockDelay) / 4 }

// goneWait bounds the search for the cause of a loss, as patience does.
const goneWait = 250 * time.Millisecond

// gone makes the lease lost after etcd has refused a request with "lease not found".
func (k sessionKey) gone(ctx context.Context, err error) {
	if k.lease.Lost() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, min(goneWait, k.patience()))
	defer cancel()
	resp, _, rerr := requests.Once(ctx, k.Sender, requests.Read, k.read)
	if rerr == nil && resp.Header.ClusterId != k.lease.Cluster() {
		// A cluster that was set up anew knows no lease either. To call that a revocation would mislead the operator. (err
		// itself does not name the cluster.)
		k.lease.Lose(holdfast.CauseClusterChanged, err)
		return
	}
	if rerr == nil && k.isIn(resp) {
		err = fmt.Errorf("the lease of its claims: %w", err)
	}
	k.lease.Lose(holdfast.CauseRevoked, err)
}
