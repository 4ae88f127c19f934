package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// againAfter is the pause after etcd has refused a member's key, such as while a permission is withdrawn.
const againAfter = 5 * time.Second

// key is a member's key under one lease. One goroutine uses it.
type key struct {
	m          *Member
	lease      *lease.Lease
	name       string
	mod        int64 // its mod revision; 0: it does not exist, as far as is known; -1: that is not known
	unanswered bool  // a put may have been carried out, or may be later
}

// run keeps the member's key as it is wanted, under one lease after the other.
func (m *Member) run(context.Context) {
	for {
		l, err := m.host.Await(m.stay)
		switch {
		case m.hasLeft(): // the lease of the key is lost, if there was one, and the key with it
			m.end(holdfast.ErrReleased)
			return
		case m.hasStood() && (etcderr.Classify(err) == etcderr.Unauthorized || errors.Is(err, rpctypes.ErrNoSpace)):
			continue // the session keeps trying for a lease: roles get repaired, and alarms disarmed
		case err != nil:
			m.end(err)
			return
		}
		entry, _ := m.at.Keys(layout.NewID(l.ID())) // a member has no claim
		k := &key{m: m, lease: l, name: entry}
		if err := k.keep(); err != nil {
			m.end(err)
			return
		}
	}
}

// keep puts the key, puts it again when something else is wanted, and removes it. It returns nil when the lease is
// lost, and otherwise why the membership has ended.
func (k *key) keep() error {
	policy := k.m.host.Retry
	ctx := k.lease.Context()
	for {
		var confirmed wanted
		err := backoff.Retry(ctx, policy, func(ctx context.Context) (err error) {
			confirmed, err = k.bringUpToDate(ctx)
			return err
		})
		switch {
		case confirmed.left:
			return holdfast.ErrReleased
		case ctx.Err() != nil:
			return nil
		case !k.m.hasStood() && !k.m.hasLeft(): // Join waits for it; without Join the session goes on
			return k.discard(ctx, policy, err)
		case err != nil:
			k.m.host.Logger.Warn("holdfast: etcd refuses to write the key of a member; its role may lack the permission; "+
				"trying again",
				"group", k.m.Group(), "name", k.m.Name(), "key", k.name, "error", err)
		}
		k.m.untilChanged(ctx, confirmed, err)
	}
}

// discard removes the key after a refusal: an earlier put, without a reply, may have left it, or may leave it later.
// It returns why there is no member.
func (k *key) discard(ctx context.Context, policy backoff.Policy, refused error) error {
	err := backoff.Retry(ctx, policy, func(ctx context.Context) error { return k.remove(ctx, wanted{}) })
	if err != nil {
		return fmt.Errorf("%w; an earlier request may have put the key %s, and etcd refuses to remove it, which then stands "+
			"until lease %s ends: %w",
			refused, names.Quote(k.name), names.Lease(k.lease.ID()), err)
	}
	return refused
}

// bringUpToDate has etcd confirm the latest wanted, and returns it.
func (k *key) bringUpToDate(ctx context.Context) (wanted, error) {
	want := k.m.wants()
	act := k.put
	if want.left {
		act = k.remove
	}
	err := act(ctx, want)
	k.m.report(k, want, err)
	if err != nil {
		return wanted{}, err
	}
	return want, nil
}

var errMoved = errors.New("another request has changed the key, or the session key")

// put puts the key. It compares the session key and the key itself: a late copy undoes neither a later put nor a
// removal.
func (k *key) put(ctx context.Context, want wanted) error {
	m := k.m
	value, err := layout.Member{
		Identity: m.host.Identity, Name: m.name, Data: want.value, Capacity: layout.Capacity(want.capacity),
		Retiring: want.retiring, Joined: m.joined, Settle: m.settle,
	}.Encode()
	if err != nil {
		return retry.Final(err)
	}
	gate := k.lease.Key()
	var other requests.Ops
	own := other.Add(clientv3.OpGet(k.name, clientv3.WithKeysOnly()))
	r, err := requests.Txn{
		If: []clientv3.Cmp{
			clientv3.Compare(clientv3.ModRevision(gate), "=", k.lease.Gate()),
			clientv3.Compare(clientv3.ModRevision(k.name), "=", k.mod),
		},
		Then: []clientv3.Op{clientv3.OpPut(k.name, value, clientv3.WithLease(k.lease.ID()))},
		Else: other,
	}.Once(ctx, m.host.Sender, requests.Write)
	k.unanswered = k.unanswered || r.Unanswered
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace): // after the first put that was too much, and then for those it refuses
		k.mod = -1
		return retry.Again(err)
	case err != nil:
		return err
	case r.Succeeded:
		k.mod = r.Header.Revision
		return nil
	}
	k.mod = 0 // deleted by another client
	if kv := r.First(own); kv != nil {
		k.mod = kv.ModRevision // put by a copy whose reply was lost
	}
	return retry.Again(errMoved)
}

// remove deletes the key. If a put was not answered, it puts the session key first: then late copies fail.
func (k *key) remove(ctx context.Context, _ wanted) error {
	if k.unanswered {
		if _, err := k.m.host.PutSessionKey(ctx, k.lease); err != nil {
			return err
		}
	}
	if !k.unanswered && k.mod == 0 {
		return nil
	}
	_, err := requests.Txn{Then: []clientv3.Op{clientv3.OpDelete(k.name)}}.Once(ctx, k.m.host.Sender, requests.Write)
	return err
}

func (m *Member) wants() wanted {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.want
}

func (m *Member) hasLeft() bool { return m.wants().left }

// hasStood reports whether etcd has ever confirmed the key.
func (m *Member) hasStood() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stands > 0
}

// report records the outcome of a request.
func (m *Member) report(k *key, confirmed wanted, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failure = err
	if err == nil && !confirmed.left { // who waits for what was never put is told the end
		m.stands, m.lease, m.key = confirmed.number, k.lease, k.name
	}
	m.changedLocked()
}

// end ends the membership.
func (m *Member) end(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = err
	m.changedLocked()
}

// untilChanged waits for a change that etcd has not confirmed, for the end of ctx, or, after an error, until it is time
// to try again.
func (m *Member) untilChanged(ctx context.Context, confirmed wanted, failed error) {
	var again <-chan time.Time
	if failed != nil {
		again = time.After(againAfter)
	}
	for {
		m.mu.Lock()
		due, changed := failed == nil && m.want.number != confirmed.number, m.changed
		m.mu.Unlock()
		if due {
			return
		}
		select {
		case <-changed:
		case <-again:
			return
		case <-ctx.Done():
			return
		}
	}
}
