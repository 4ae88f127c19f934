package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// With MinHold a name stays taken until that has passed since the grant, although the hold was released before, or its
// session closed. For the rest of that time the entry is moved to its own lease, which nothing renews, so it needs
// neither this session nor this process. To waiters it is an entry like any other.
//
//   - The move compares the create revision and the lease. So a copy that arrives late moves the entry of this hold, or
//     does nothing, and none undoes what an administrator has done meanwhile (admin.Remove).
//   - A move without a reply may have been carried out. So its lease is not revoked, which would free the name; an
//     unused lease expires.
//   - Until the move has a reply, the session accounts for the entry. If etcd refuses the move, the session removes the
//     entry when the time is over.
//   - The key is not used again, since the entry has it.

// movesInFlight bounds the moves at the end of a lease.
const movesInFlight = 8

// takeFor makes the name stay taken for d from now on.
func (e *entry) takeFor(d time.Duration) {
	until := e.q.host.Clock()() + d
	e.mu.Lock()
	defer e.mu.Unlock()
	e.takenUntil = until
}

// dropMinHold makes the name free once the entry is gone: the hold was lost.
func (e *entry) dropMinHold() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.takenUntil = 0
}

// takenFor is the rest of MinHold.
func (e *entry) takenFor() time.Duration {
	e.mu.Lock()
	until := e.takenUntil
	e.mu.Unlock()
	if until == 0 {
		return 0
	}
	return max(0, until-e.q.host.Clock()())
}

// stayTaken moves the entry of a released hold to its own lease, on a goroutine of the session. The next goroutine in
// the line does not wait for that: it queues behind the entry.
func (h *Hold) stayTaken() {
	h.line.next()
	if !h.entry.q.host.Go(h.keepName) { // joined by Close
		h.keepName(h.entry.lease.Context()) // closed: the lease is lost, so this sends nothing; beforeRevoke moves the entry
	}
}

func (h *Hold) keepName(context.Context) {
	e := h.entry
	err, late := e.move()
	if late {
		_ = sleep(e.lease.Context(), e.takenFor()) // the session's clock may be slower than timers
		err = e.remove(e.lease.Context())
	}
	h.markRemoved(h.explain(err))
	h.finalize()
	switch {
	case err == nil || late:
	case errors.Is(err, errEntryGone):
		e.finish()
	case e.lease.Lost() != nil:
		e.abandon()
	default:
		e.removeInTime(err)
	}
}

// move tries to move the entry until MinHold has passed; then it is late. nil: the entry stands on its own lease.
func (e *entry) move() (err error, late bool) {
	ctx, cancel := context.WithTimeout(e.lease.Context(), e.takenFor())
	defer cancel()
	m := move{entry: e}
	err = e.retry(ctx, m.try)
	switch {
	case err == nil:
		e.moved = true
		e.finish()
		return nil, false
	case m.unanswered && !errors.Is(err, holdfast.ErrOutcomeUnknown):
		err = fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
	}
	return err, ctx.Err() != nil && e.lease.Lost() == nil && !errors.Is(err, errEntryGone)
}

// removeInTime removes the entry when MinHold has passed, after etcd has refused to move it.
func (e *entry) removeInTime(refused error) {
	e.log().Warn("holdfast: etcd refuses to keep the name of a released lock taken by a lease of its own (MinHold); "+
		"the session keeps it taken, as long as its lease lives", "rest", e.takenFor(), "error", refused)
	if ctx := e.lease.Context(); sleep(ctx, e.takenFor()) {
		_ = e.remove(ctx)
	} else {
		e.abandon()
	}
}

// move is the move of one entry. It does not change the entry, so beforeRevoke can make another move on a different
// goroutine.
type move struct {
	*entry
	lease      clientv3.LeaseID // the entry's own; 0: none was granted yet
	ttl        time.Duration
	unanswered bool // a copy may have been carried out, or may be yet
}

// try sends the Grant, if none has a reply yet, and the put.
func (m *move) try(ctx context.Context) error {
	if m.lease == clientv3.NoLease {
		if err := m.grant(ctx); err != nil {
			return err
		}
	}
	r, err := m.commit(ctx, txns.Txn{
		If:   []clientv3.Cmp{m.owned(), clientv3.Compare(clientv3.LeaseValue(m.key), "=", m.entry.lease.ID())},
		Then: []clientv3.Op{clientv3.OpPut(m.key, m.takenValue(m.ttl), clientv3.WithLease(m.lease))},
		Else: []clientv3.Op{clientv3.OpGet(m.key)},
	})
	m.unanswered = m.q.reportUnknown("move", err) || r.Unanswered || m.unanswered
	switch {
	case etcderr.Classify(err) == etcderr.LeaseGone: // the entry's own: it was revoked by hand
		m.lease = clientv3.NoLease
		return backoff.Again(err)
	case err != nil:
		return err
	case r.Succeeded || isEntry(r.First(0), m.rev):
		return nil // in the second case a copy of ours has moved it, or an administrator
	default:
		return errEntryGone
	}
}

// grant obtains a lease for the rest of MinHold. etcd makes short ones longer. Surplus
// leases, of Grants that were sent twice or have no reply, have no keys and expire.
func (m *move) grant(ctx context.Context) error {
	seconds := int64((m.takenFor() + time.Second - 1) / time.Second)
	resp, _, err := attempt.Once(ctx, m.q.host.Sender(), attempt.Write,
		func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
			return m.q.host.Client().Grant(ctx, max(1, seconds))
		})
	if err != nil {
		return fmt.Errorf("grant a lease for the rest of MinHold: %w", err)
	}
	m.lease, m.ttl = resp.ID, time.Duration(resp.TTL)*time.Second
	return nil
}

// takenValue is the entry's value after the release.
func (e *entry) takenValue(ttl time.Duration) string {
	v, ok := layout.DecodeValue([]byte(e.value))
	if !ok {
		return e.value
	}
	now := time.Now()
	v.Held = now.Add(e.takenFor() - e.ticket.request.MinHold)
	v.Released, v.TakenUntil = now, now.Add(ttl)
	return v.Encode()
}

// moveTaken moves the entries whose MinHold has not passed before their lease is revoked, once each. It returns the
// others. An entry that cannot be moved expires with the lease: a deletion would free the name even if the move was
// carried out.
func (s *shared) moveTaken(ctx context.Context, entries []*entry) (others []*entry) {
	var all sync.WaitGroup
	defer all.Wait()
	slots := make(chan struct{}, movesInFlight)
	for _, e := range entries {
		if e.takenFor() == 0 {
			others = append(others, e)
			continue
		}
		slots <- struct{}{}
		all.Go(func() { // joined above
			defer func() { <-slots }()
			m := move{entry: e}
			if err := m.try(ctx); err == nil || errors.Is(err, errEntryGone) {
				s.keys.unregister(e)
			} else {
				e.log().Warn("holdfast: a name that MinHold keeps taken may be free too early: "+
					"its entry was not moved before the session's lease ended", "error", err)
			}
		})
	}
	return others
}

// taken reports whether MinHold keeps the oldest entry of the queue.
func (q *Queue) taken(oldest *mvccpb.KeyValue) bool {
	if oldest == nil {
		return false
	}
	v, ok := layout.DecodeValue(oldest.Value)
	return ok && !v.Released.IsZero() || q.shared.keys.taken(string(oldest.Key))
}
