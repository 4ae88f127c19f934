package member

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
)

// reservation is a second key of a member, on a lease of its own: while it stands, and the member's key does not,
// readers list the member as absent.
//
//	TTL 15 s, Rejoin 60 s: the lease has 15+60+30 s, and is renewed every 30 s
//	0 s: renewed, and the process dies · by 15 s: the member's key goes · 105 s: the reservation goes
//	had it died just before the next renewal: the key goes by 45 s, the reservation at 105 s
//
// So after a crash a reservation outlives the member's key by Rejoin to one and a half times Rejoin. A member that
// leaves puts another reservation, for Rejoin.
//
// Nothing compares this key. A late copy of a put brings it back on a lease without renewals, where it counts as the
// youngest until that ends, or finds the lease gone.
type reservation struct {
	m      *Member
	rejoin time.Duration
	cancel context.CancelFunc
	ended  chan struct{} // closed when nothing renews it any more
	leave  sync.Once

	lease    clientv3.LeaseID // of the key; 0: there is none. After ended it is leave's
	key      string
	capacity Capacity // in the key
}

// reserve puts a reservation, and keeps it until the member leaves or its session closes.
func reserve(m *Member, rejoin time.Duration) *reservation {
	ctx, cancel := context.WithCancel(m.host.Context)
	r := &reservation{m: m, rejoin: rejoin, cancel: cancel, ended: make(chan struct{})}
	keep := func(context.Context) {
		defer close(r.ended)
		r.keep(ctx)
	}
	if !m.host.Go(keep) { // joined by the session's Close
		close(r.ended)
	}
	return r
}

func (r *reservation) keep(ctx context.Context) {
	for {
		pause, err := r.rejoin/2, r.renew(ctx)
		if err != nil && ctx.Err() == nil {
			pause = min(pause, againAfter)
			r.m.host.Logger.Warn("holdfast: the reservation of a member was not renewed; trying again; "+
				"if its process dies meanwhile, others may not wait for it to rejoin",
				"group", r.m.Group(), "name", r.m.Name(), "error", err)
		}
		if !r.wait(ctx, pause, err) {
			return
		}
	}
}

// wait waits until the lease is due, or the member's capacity has changed. It reports false when ctx or the membership
// has ended.
func (r *reservation) wait(ctx context.Context, pause time.Duration, failed error) bool {
	due := time.After(pause)
	for {
		r.m.mu.Lock()
		old, ended, changed := r.m.want.capacity != r.capacity, r.m.ended != nil, r.m.changed
		r.m.mu.Unlock()
		switch {
		case ended: // under StayLost with its lease: it is absent as after a death
			return false
		case old && failed == nil:
			return true
		}
		select {
		case <-changed:
		case <-due:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// renew renews the lease, or puts the key under a new lease, if the old one has ended or the capacity has changed.
func (r *reservation) renew(ctx context.Context) error {
	if r.lease != clientv3.NoLease && r.capacity == r.m.Capacity() {
		err := r.m.host.Renew(ctx, r.lease)
		if etcderr.Classify(err) != etcderr.LeaseGone {
			return err
		}
	}
	return r.put(ctx, r.m.host.Lease().TTL()+r.rejoin+r.rejoin/2)
}

// shorten ends the renewals, and has the reservation end in Rejoin. If etcd cannot be told before the member's own
// lease is lost, the reservation ends when its lease does.
func (r *reservation) shorten(ctx context.Context) {
	r.leave.Do(func() {
		r.cancel()
		<-r.ended
		if r.m.host.Context.Err() != nil {
			return // Close would not wait for a request that is sent now
		}
		r.m.mu.Lock()
		own := r.m.lease
		r.m.mu.Unlock()
		ctx, cancel := lease.UntilLost(ctx, own) // Leave does not wait for more
		defer cancel()
		if err := r.put(ctx, r.rejoin); err != nil {
			r.m.host.Logger.Warn("holdfast: a member leaves without a reservation of the right length; "+
				"others may not wait for it to rejoin, or wait up to twice as long",
				"group", r.m.Group(), "name", r.m.Name(), "error", err)
		}
	})
}

// put puts the key under a new lease, and deletes the key before, whose lease expires.
func (r *reservation) put(ctx context.Context, ttl time.Duration) error {
	host := r.m.host
	granted, _, err := requests.Once(ctx, host.Sender, requests.Write,
		func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
			return host.Client.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
		})
	if err != nil {
		return fmt.Errorf("grant a lease for a reservation: %w", err)
	}
	capacity := r.m.Capacity()
	value, err := layout.Member{
		Identity: host.Identity, Name: r.m.name, Capacity: layout.Capacity(capacity), Reserved: true, Joined: r.m.joined,
	}.Encode()
	if err != nil {
		return err
	}
	key := r.m.at.ReservationKey(layout.NewID(granted.ID))
	ops := []clientv3.Op{clientv3.OpPut(key, value, clientv3.WithLease(granted.ID))}
	if r.key != "" {
		ops = append(ops, clientv3.OpDelete(r.key))
	}
	if _, err := (requests.Txn{Then: ops}).Ask(ctx, host.Sender, requests.Write); err != nil {
		return fmt.Errorf("put a reservation: %w", err)
	}
	r.lease, r.key, r.capacity = granted.ID, key, capacity
	return nil
}
