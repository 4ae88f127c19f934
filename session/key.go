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
	key := b.SessionKey(l.id)
	// Sent again as soon as a question is: a copy too many only moves the gate once
	// more, and restoreSessionKey has a quarter of the lock delay.
	resp, _, err := attempt.Once(ctx, b.s.sender, attempt.Read, func(ctx context.Context) (*clientv3.PutResponse, error) {
		return b.s.client.Put(ctx, key, b.s.keyValue, clientv3.WithLease(l.id))
	})
	if err != nil {
		return 0, fmt.Errorf("put session key %q: %w", key, err)
	}
	l.SawGate(resp.Header.Revision)
	return resp.Header.Revision, nil
}

// Identity is who a session is, for people who look into etcd. What holdfast
// writes there holds it as JSON, next to a format number, "v".
type Identity struct {
	Owner string `json:"owner,omitempty"`
	Host  string `json:"host,omitempty"`
	PID   int    `json:"pid,omitempty"`
}

// Identity is what Options.Owner and Options.Anonymous make of this process.
func (b Base) Identity() Identity { return b.s.identity }

func (o Options) identity() Identity {
	if o.Anonymous {
		return Identity{Owner: o.Owner}
	}
	host, _ := os.Hostname() // unknown is as good as empty here
	pid := os.Getpid()
	return Identity{Owner: cmp.Or(o.Owner, fmt.Sprintf("%s:%d", host, pid)), Host: host, PID: pid}
}

// sessionValue is what a session key holds.
func sessionValue(who Identity) string {
	b, err := json.Marshal(struct {
		V int `json:"v"`
		Identity
	}{1, who})
	if err != nil {
		return "" // cannot be: plain fields only
	}
	return string(b)
}

// announce puts the session key of a lease that was just granted. Where that is
// refused the lease is revoked: a session without its key would never learn that
// it may not have one.
func (s *Session) announce(ctx context.Context, l *Lease) error {
	_, err := s.Base().PutSessionKey(ctx, l)
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
func (s *Session) watchSessionKey(l *Lease) {
	policy := s.opts.Retry
	policy.Max = min(cmp.Or(policy.Max, backoff.DefaultMax), time.Second)
	policy.Initial = min(cmp.Or(policy.Initial, backoff.DefaultInitial), policy.Max)
	pauses, err := policy.New()
	if err != nil {
		return // cannot be: New has validated it
	}
	for n := 0; ; n++ {
		armed := s.opts.Clock()
		s.watchUntilDeleted(l, fmt.Sprintf("%x-%d", int64(l.id), n))
		if s.opts.Clock()-armed > healthyWatch {
			pauses.Reset()
		}
		select {
		case <-time.After(pauses.NextBackOff()):
		case <-l.ctx.Done():
			return
		}
	}
}

// watchUntilDeleted returns when the watch has failed, or the key was deleted and
// that has been dealt with. The watch starts from now, because etcd serves one
// from a known revision late; the read after its creation finds what was before.
func (s *Session) watchUntilDeleted(l *Lease, stream string) {
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(l.ctx), watchKey, stream))
	defer cancel()
	unarmed := time.AfterFunc(armTimeout, cancel)
	defer unarmed.Stop()
	events := s.client.Watch(ctx, s.Base().SessionKey(l.id), clientv3.WithCreatedNotify(), clientv3.WithFilterPut())
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
		if resp.Header.ClusterId == l.cluster {
			_ = s.restoreSessionKey(l, resp.Events[0].Kv.ModRevision)
		}
		return
	}
}

// readSessionKey is a linearizable read. It also confirms renewals.
func (s *Session) readSessionKey(ctx context.Context, l *Lease) (*clientv3.GetResponse, error) {
	key := s.Base().SessionKey(l.id)
	resp, err := s.client.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("read session key %q: %w", key, err)
	}
	return resp, nil
}

// keepSessionKey judges what readSessionKey has read: the key has to stand, with
// its lease. It returns an error when that could not be brought about.
func (s *Session) keepSessionKey(l *Lease, read *clientv3.GetResponse) error {
	switch {
	case read.Header.ClusterId != l.cluster:
		l.Lose(holdfast.CauseClusterChanged, nil)
		return errClusterChanged
	case len(read.Kvs) == 1 && read.Kvs[0].Lease == int64(l.id):
		l.SawGate(read.Kvs[0].ModRevision)
		return nil
	}
	return s.restoreSessionKey(l, read.Header.Revision)
}

// restoreSessionKey puts the session key again, which at revision seen did not
// stand. Either someone has deleted it, and nothing is lost, or the lease was
// revoked, and etcd refuses the put. Without an answer the worse is assumed: a
// waiter whose predecessor was revoked holds a LockDelay later.
func (s *Session) restoreSessionKey(l *Lease, seen int64) error {
	if l.ctx.Err() != nil || l.Gate() > seen {
		return nil // it is over, or was put again meanwhile
	}
	within := cmp.Or(s.opts.LockDelay, defaultLockDelay) / 4
	ctx, cancel := context.WithTimeout(l.ctx, within)
	defer cancel()
	policy := s.opts.Retry
	policy.Notify = nil // there is no time for callbacks
	err := backoff.Retry(ctx, policy, func(ctx context.Context) error {
		_, err := s.Base().PutSessionKey(ctx, l)
		return err
	})
	switch {
	case err == nil:
		s.opts.Logger.Warn("holdfast: the session key was deleted, or detached from its lease, by someone else; "+
			"it was put again and nothing is lost", "key", s.Base().SessionKey(l.id))
		return nil
	case backoff.Classify(err) == backoff.LeaseGone:
		return l.Lose(holdfast.CauseRevoked, err)
	default:
		return l.Lose(holdfast.CauseKeyDeleted, fmt.Errorf("not put again within %v: %w", within, err))
	}
}
