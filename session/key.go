package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/watching"
)

// The session key exists as long as its lease. Its watch reports a revoked lease at once. Txns compare its mod
// revision, the gate, so that late requests fail. Its absence tells other clients that an entry was deleted together
// with its lease.

const (
	// armTimeout bounds the creation of the watch. A member creates it without asking the others, so one that takes
	// longer hangs.
	armTimeout = time.Second

	// The timeout doubles up to maxArmTimeout. If all members are slow, more watches add to their load: etcd's client
	// forgets one that is canceled before it was created, and leaves it in etcd with its stream.
	maxArmTimeout = 8 * time.Second
)

func (h host) SessionKey(id clientv3.LeaseID) string { return names.SessionKey(h.opts.Namespace, id) }

func (h host) PutSessionKey(ctx context.Context, l *lease.Lease) (int64, error) {
	key := h.SessionKey(l.ID())
	// Repeated as a read is, early and then one at a time: a superfluous copy only moves the gate once more, and
	// restoreSessionKey has a quarter of the lock delay.
	resp, _, err := attempt.Once(ctx, h.sender, attempt.Read, func(ctx context.Context) (*clientv3.PutResponse, error) {
		return h.client.Put(ctx, key, h.keyValue, clientv3.WithLease(l.ID()))
	})
	if err != nil {
		return 0, fmt.Errorf("put session key %q: %w", key, err)
	}
	l.SawGate(resp.Header.Revision)
	return resp.Header.Revision, nil
}

func (o Options) identity() layout.Identity {
	if o.Anonymous {
		return layout.Identity{Owner: o.Owner}
	}
	host, _ := os.Hostname() // unknown is as good as empty here
	pid := os.Getpid()
	return layout.Identity{Owner: cmp.Or(o.Owner, fmt.Sprintf("%s:%d", host, pid)), Host: host, PID: pid}
}

// announce puts the session key of a lease that was just granted. If that is refused, it revokes the lease.
func (s *Session) announce(ctx context.Context, l *lease.Lease) error {
	_, err := host{s}.PutSessionKey(ctx, l)
	switch etcderr.Classify(err) {
	case etcderr.OK:
		return nil
	case etcderr.LeaseGone:
		return backoff.Again(err) // it took too long
	case etcderr.Unauthorised:
		if errors.Is(err, rpctypes.ErrPermissionDenied) { // and not, say, a token that has expired
			err = fmt.Errorf("%w; grant it to a role of this user: "+
				"etcdctl role grant-permission --prefix ROLE readwrite %s", err, names.SessionKeys(s.opts.Namespace))
		}
	case etcderr.Transient, etcderr.Permanent, etcderr.Unknown:
	}
	// Either etcd answers, or Close has cut this off and must leave no lease behind.
	if !etcderr.Pending(err) || s.ctx.Err() != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.CloseTimeout)
		defer cancel()
		s.revoke(ctx, l)
	}
	return err
}

// watchSessionKey keeps a watch of the key of l until l is lost.
func (s *Session) watchSessionKey(l *lease.Lease) {
	policy := s.opts.Retry
	policy.Max = min(cmp.Or(policy.Max, backoff.DefaultMax), time.Second)
	policy.Initial = min(cmp.Or(policy.Initial, backoff.DefaultInitial), policy.Max)
	pauses, err := policy.New()
	if err != nil {
		return // cannot happen: New has validated the policy
	}
	within := armTimeout
	for {
		healthy := s.watchUntilDeleted(l, within)
		within = min(2*within, maxArmTimeout)
		if healthy {
			pauses.Reset()
			within = armTimeout
		}
		select {
		case <-time.After(pauses.NextBackOff()):
		case <-l.Context().Done():
			return
		}
	}
}

// watchUntilDeleted watches the key of l, and restores it when it is deleted. It returns then, or when the watch
// fails or is not created within the given time, and says whether it was healthy. Each is on a stream of its own, which
// goes to the next member.
func (s *Session) watchUntilDeleted(l *lease.Lease, within time.Duration) (healthy bool) {
	ctx := l.Context()
	armed, err := watching.NewStream().Arm(ctx, watching.Request{
		Client: s.client, Open: ctx, Key: host{s}.SessionKey(l.ID()), Opts: []clientv3.OpOption{clientv3.WithFilterPut()},
		Within: within,
	})
	if err != nil {
		return false
	}
	defer armed.Close()
	read, err := attempt.Ask(ctx, s.sender, attempt.Read, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return s.readSessionKey(ctx, l)
	})
	if err == nil {
		err = s.checkSessionKey(l, read)
	}
	for err == nil {
		var resp clientv3.WatchResponse
		if resp, err = armed.Next(ctx, nil); len(resp.Events) > 0 {
			if resp.Header.ClusterId == l.Cluster() {
				_ = s.restoreSessionKey(l, resp.Events[0].Kv.ModRevision)
			}
			break
		}
	}
	return armed.Healthy()
}

// readSessionKey is a linearizable read. It serves as the proof of renewals as well.
func (s *Session) readSessionKey(ctx context.Context, l *lease.Lease) (*clientv3.GetResponse, error) {
	key := host{s}.SessionKey(l.ID())
	resp, err := s.client.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("read session key %q: %w", key, err)
	}
	return resp, nil
}

// checkSessionKey restores the key of l unless read shows that it exists and is attached to l. It returns an error
// if the key could not be restored.
func (s *Session) checkSessionKey(l *lease.Lease, read *clientv3.GetResponse) error {
	switch {
	case read.Header.ClusterId != l.Cluster():
		l.Lose(holdfast.CauseClusterChanged, nil)
		return errClusterChanged
	case len(read.Kvs) == 1 && read.Kvs[0].Lease == int64(l.ID()):
		l.SawGate(read.Kvs[0].ModRevision)
		return nil
	}
	return s.restoreSessionKey(l, read.Header.Revision)
}

// restoreSessionKey puts the session key again, which did not exist at revision seen. If the key was deleted by
// hand, that succeeds and nothing is lost. If the lease was revoked, etcd refuses it. If etcd does not answer, the
// lease is given up: a waiter may acquire the lock a LockDelay after a revocation.
func (s *Session) restoreSessionKey(l *lease.Lease, seen int64) error {
	if l.Context().Err() != nil || l.Gate() > seen {
		return nil // lost, or put again in the meantime
	}
	within := cmp.Or(s.opts.LockDelay, defaultLockDelay) / 4
	ctx, cancel := context.WithTimeout(l.Context(), within)
	defer cancel()
	policy := s.opts.Retry
	policy.Notify = nil // no time for callbacks
	err := backoff.Retry(ctx, policy, func(ctx context.Context) error {
		_, err := host{s}.PutSessionKey(ctx, l)
		return err
	})
	switch {
	case err == nil:
		s.opts.Logger.Warn("holdfast: session key was deleted, or detached from its lease, by another client; "+
			"it was put again and nothing is lost", "key", host{s}.SessionKey(l.ID()))
		return nil
	case etcderr.Classify(err) == etcderr.LeaseGone:
		return l.Lose(holdfast.CauseRevoked, err)
	default:
		return l.Lose(holdfast.CauseKeyDeleted, fmt.Errorf("could not put it again within %v: %w", within, err))
	}
}
