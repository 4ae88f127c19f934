package hold

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// With MinHold a name stays taken for so long from the grant on, although the hold was released before, or its
// session closed. For the rest of that time the entry moves to a lease of its own. Nothing renews the lease, so the
// entry needs neither this session nor this process. To waiters it is an entry like any other:
//
//	0 s    rev 10  A puts its entry on its session's lease, and holds, with MinHold 60 s
//	20 s           A unlocks, and grants a lease of 40 s
//	       rev 11  A puts the entry again, on that lease, and deletes its claim
//	60 s           the lease expires: B holds, without a delay

// movesInFlight bounds the moves at the end of a lease.
const movesInFlight = 8

// stayTaken moves the entry of a released hold to its own lease, on a goroutine of the session.
func (r *removal) stayTaken() {
	// The next goroutine does not wait for the move: it queues behind the entry.
	r.hold.grant.LeaveLine()
	r.onSession(r.keepName) // if that is closed, beforeRevoke moves the entry
}

func (r *removal) keepName() {
	g := r.hold.grant
	m := move{grant: g, host: r.hold.host.Env}
	err, late := m.inTime()
	left := late
	if late { // the name is to be free now. A late copy of the move finds no entry
		_ = lease.Sleep(g.Lease.Context(), g.TakenFor()) // the session's clock may be slower than timers
		err = g.Remove()
	} else {
		left = g.Left(err) // without an error the entry stays, so its key is not used again
	}
	r.finalize(err)
	if !left { // until MinHold has passed, the session goes on accounting for the entry
		g.Log().Warn("holdfast: etcd refuses to keep the name of a released lock taken by a lease of its own (MinHold); "+
			"the session keeps it taken, as long as its lease lives", "rest", g.TakenFor(), "error", err)
		_ = lease.Sleep(g.Lease.Context(), g.TakenFor())
		_ = g.Remove() // on a lost lease it sends nothing
	}
}

// move is one try to move an entry. It does not change the grant, so beforeRevoke can make another move on a different
// goroutine.
type move struct {
	grant      *queue.Grant
	host       *lease.Env
	own        ownLease
	unanswered bool // a copy may have been carried out, or may be yet
}

// inTime tries to move the entry until MinHold has passed; then it is late. nil: the entry stands on its own lease.
func (m *move) inTime() (err error, late bool) {
	l := m.grant.Lease
	ctx, cancel := context.WithTimeout(l.Context(), m.grant.TakenFor())
	defer cancel()
	err = m.grant.Retry(ctx, m.try)
	// After an error the entry's lease is not revoked: the move may have been carried out, and a revocation would free the
	// name. An unused lease expires.
	switch {
	case err == nil:
		return nil, false
	case m.unanswered && !errors.Is(err, holdfast.ErrOutcomeUnknown):
		err = fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
	}
	return err, ctx.Err() != nil && l.Lost() == nil && !errors.Is(err, queue.ErrEntryGone)
}

// try sends the Grant, if none has a reply yet, and the put.
func (m *move) try(ctx context.Context) error {
	g := m.grant
	if err := m.own.obtain(ctx, m.host, g.TakenFor()); err != nil {
		return err
	}
	then := []clientv3.Op{clientv3.OpPut(g.Key, m.takenValue(), clientv3.WithLease(m.own.id))}
	if g.Claim != "" {
		then = append(then, clientv3.OpDelete(g.Claim)) // it would stay when the entry goes, and delay the next holder
	}
	// A copy that arrives late moves the entry of this hold, or does nothing, and none undoes an administrator's Remove:
	//
	//	rev 20  the move is sent, and has no reply
	//	rev 25  Remove puts the entry on a lease of 8 s
	//	        a copy of the move compares the lease, and does nothing: the name is free 8 s later
	r, err := g.Commit(ctx, requests.Txn{
		If:   []clientv3.Cmp{g.Holding(), clientv3.Compare(clientv3.LeaseValue(g.Key), "=", g.Lease.ID())},
		Then: then,
		Else: []clientv3.Op{clientv3.OpGet(g.Key)},
	})
	m.unanswered = g.Queue.ReportUnknown("move", err) || r.Unanswered || m.unanswered
	switch {
	case etcderr.Classify(err) == etcderr.LeaseGone: // the entry's own: it was revoked by hand
		m.own = ownLease{}
		return retry.Again(err)
	case err != nil:
		return err
	case r.Succeeded || g.Is(r.First(0)):
		return nil // if it was refused and the entry stands, a copy of ours or an administrator has moved the entry
	default:
		return queue.ErrEntryGone
	}
}

// ownLease is a lease for an entry alone. Nothing renews it.
type ownLease struct {
	id    clientv3.LeaseID // 0: none was granted yet
	ttl   time.Duration    // etcd makes short leases longer
	until time.Time        // it ends then, or later
}

// end says until when the lease lives, if nothing revokes it.
func (o *ownLease) end() string { return o.until.UTC().Format(time.RFC3339) }

// obtain asks etcd for a lease of d, unless there is one already.
func (o *ownLease) obtain(ctx context.Context, host *lease.Env, d time.Duration) error {
	if o.id != clientv3.NoLease {
		return nil
	}
	sent, seconds := time.Now(), int64((d+time.Second-1)/time.Second)
	resp, _, err := requests.Once(ctx, host.Sender, requests.Write,
		func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
			return host.Client.Grant(ctx, max(1, seconds)) // each copy grants another; the surplus has no keys, and expires
		})
	if err != nil {
		return fmt.Errorf("grant a lease for the entry: %w", err)
	}
	ttl := time.Duration(resp.TTL) * time.Second
	*o = ownLease{resp.ID, ttl, sent.Add(ttl)}
	return nil
}

// takenValue is the entry's value after the release.
func (m *move) takenValue() string {
	v, ok := layout.DecodeValue([]byte(m.grant.Value))
	if !ok {
		return m.grant.Value
	}
	now := time.Now()
	v.Held = m.grant.TakenSince()
	v.Released, v.TakenUntil = now, now.Add(m.own.ttl)
	return v.Encode()
}

// moveTaken moves the entries whose MinHold has not passed before their lease is revoked, once each.
func moveTaken(ctx context.Context, host *lease.Host, l *lease.Lease) {
	var all sync.WaitGroup
	defer all.Wait()
	slots := make(chan struct{}, movesInFlight)
	for _, g := range queue.Taken(host, l) {
		slots <- struct{}{}
		all.Go(func() { // joined above
			defer func() { <-slots }()
			m := move{grant: g, host: host.Env}
			if err := m.try(ctx); err == nil || errors.Is(err, queue.ErrEntryGone) {
				g.Forget()
			} else { // the entry ends with the lease. A deletion would free the name even if the move was carried out
				g.Log().Warn("holdfast: a name that MinHold keeps taken may be free too early: "+
					"its entry was not moved before the session's lease ended", "error", err)
			}
		})
	}
}
