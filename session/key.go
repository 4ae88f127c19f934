package session

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// The session key of a lease stands as long as the lease does. Its watch tells
// the session at once when the lease is revoked; a comparison with its mod
// revision, the gate, stops requests that arrive late; and its absence shows
// others that an entry went together with its lease.

const (
	// armTimeout bounds the arming of the watch. A member answers it by itself,
	// without the others; one that takes longer hangs.
	armTimeout = time.Second

	// healthyWatch: a watch that lived for that long resets the backoff.
	healthyWatch = 10 * time.Second

	// watchKey makes each watch a stream of its own, so that it goes to the next
	// member: etcd's client has one stream for each set of metadata. etcd does
	// not look at it.
	watchKey = "holdfast-session"
)

func (h host) SessionKey(id clientv3.LeaseID) string {
	return fmt.Sprintf("%s/session/%x", h.opts.Namespace, int64(id))
}

// PutSessionKey puts the session key of l again, and returns the new gate: every
// request that compares an older one fails from then on.
func (h host) PutSessionKey(ctx context.Context, l *lease.Lease) (int64, error) {
	key := h.SessionKey(l.ID())
	// Sent again as soon as a question is: a copy too many only moves the gate once
	// more, and restoreSessionKey has a quarter of the lock delay.
	resp, _, err := attempt.Once(ctx, h.sender, attempt.Read, func(ctx context.Context) (*clientv3.PutResponse, error) {
		return h.client.Put(ctx, key, h.keyValue, clientv3.WithLease(l.ID()))
	})
	if err != nil {
		return 0, fmt.Errorf("put session key %q: %w", key, err)
	}
	l.SawGate(resp.Header.Revision)
	return resp.Header.Revision, nil
}

func (o Options) identity() lease.Identity {
	if o.Anonymous {
		return lease.Identity{Owner: o.Owner}
	}
	host, _ := os.Hostname() // unknown is as good as empty here
	pid := os.Getpid()
	return lease.Identity{Owner: cmp.Or(o.Owner, fmt.Sprintf("%s:%d", host, pid)), Host: host, PID: pid}
}

// sessionValue is what a session key holds.
func sessionValue(who lease.Identity) string {
	b, err := json.Marshal(struct {
		V int `json:"v"`
		lease.Identity
	}{1, who})
	if err != nil {
		return "" // cannot be: plain fields only
	}
	return string(b)
}

// announce puts the session key of a lease that was just granted. Where that is
// refused the lease is revoked: a session without its key would never learn that
// it may not have one.
func (s *Session) announce(ctx context.Context, l *lease.Lease) error {
	_, err := host{s}.PutSessionKey(ctx, l)
	switch backoff.Classify(err) {
	case backoff.OK:
		return nil
	case backoff.LeaseGone:
		return backoff.Again(err) // it took too long: the next lease may do better
	case backoff.Unauthorised:
		err = fmt.Errorf("%w; grant it to a role of this user: etcdctl role grant-permission --prefix ROLE readwrite %s/session/",
			err, s.opts.Namespace)
	}
	if !backoff.Pending(err) || s.ctx.Err() != nil { // etcd answers; or Close, which leaves nothing behind, has cut this off
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.CloseTimeout)
		defer cancel()
		s.revoke(ctx, l)
	}
	return err
}

// watchSessionKey tells the session at once when the key of l is deleted, until l
// is lost.
func (s *Session) watchSessionKey(l *lease.Lease) {
	policy := s.opts.Retry
	policy.Max = min(cmp.Or(policy.Max, backoff.DefaultMax), time.Second)
	policy.Initial = min(cmp.Or(policy.Initial, backoff.DefaultInitial), policy.Max)
	pauses, err := policy.New()
	if err != nil {
		return // cannot be: New has validated it
	}
	for n := 0; ; n++ {
		armed := s.opts.Clock()
		s.watchUntilDeleted(l, fmt.Sprintf("%x-%d", int64(l.ID()), n))
		if s.opts.Clock()-armed > healthyWatch {
			pauses.Reset()
		}
		select {
		case <-time.After(pauses.NextBackOff()):
		case <-l.Context().Done():
			return
		}
	}
}

// watchUntilDeleted returns when the watch has failed, or the key was deleted and
// that has been dealt with. The watch starts from now, because etcd serves one
// from a known revision late; the read after its creation finds what was before.
func (s *Session) watchUntilDeleted(l *lease.Lease, stream string) {
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(l.Context()), watchKey, stream))
	defer cancel()
	unarmed := time.AfterFunc(armTimeout, cancel)
	defer unarmed.Stop()
	events := s.client.Watch(ctx, host{s}.SessionKey(l.ID()), clientv3.WithCreatedNotify(), clientv3.WithFilterPut())
	if created, ok := <-events; !ok || created.Err() != nil {
		return
	}
	unarmed.Stop()
	read, err := attempt.Ask(ctx, s.sender, attempt.Read, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return s.readSessionKey(ctx, l)
	})
	if err != nil || s.keepSessionKey(l, read) != nil {
		return
	}
	for resp := range events {
		if len(resp.Events) == 0 {
			continue
		}
		if resp.Header.ClusterId == l.Cluster() {
			_ = s.restoreSessionKey(l, resp.Events[0].Kv.ModRevision)
		}
		return
	}
}

// readSessionKey is a linearizable read. It also confirms renewals.
func (s *Session) readSessionKey(ctx context.Context, l *lease.Lease) (*clientv3.GetResponse, error) {
	key := host{s}.SessionKey(l.ID())
	resp, err := s.client.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("read session key %q: %w", key, err)
	}
	return resp, nil
}

// keepSessionKey judges what readSessionKey has read: the key has to stand, with
// its lease. It returns an error when that could not be brought about.
func (s *Session) keepSessionKey(l *lease.Lease, read *clientv3.GetResponse) error {
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

// restoreSessionKey puts the session key again, which at revision seen did not
// stand. Either someone has deleted it, and nothing is lost, or the lease was
// revoked, and etcd refuses the put. Without an answer the worse is assumed: a
// waiter whose predecessor was revoked holds a LockDelay later.
func (s *Session) restoreSessionKey(l *lease.Lease, seen int64) error {
	if l.Context().Err() != nil || l.Gate() > seen {
		return nil // it is over, or was put again meanwhile
	}
	within := cmp.Or(s.opts.LockDelay, defaultLockDelay) / 4
	ctx, cancel := context.WithTimeout(l.Context(), within)
	defer cancel()
	policy := s.opts.Retry
	policy.Notify = nil // there is no time for callbacks
	err := backoff.Retry(ctx, policy, func(ctx context.Context) error {
		_, err := host{s}.PutSessionKey(ctx, l)
		return err
	})
	switch {
	case err == nil:
		s.opts.Logger.Warn("holdfast: the session key was deleted, or detached from its lease, by someone else; "+
			"it was put again and nothing is lost", "key", host{s}.SessionKey(l.ID()))
		return nil
	case backoff.Classify(err) == backoff.LeaseGone:
		return l.Lose(holdfast.CauseRevoked, err)
	default:
		return l.Lose(holdfast.CauseKeyDeleted, fmt.Errorf("not put again within %v: %w", within, err))
	}
}
