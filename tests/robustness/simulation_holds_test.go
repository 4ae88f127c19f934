package robustness

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
)

// forcedLossLimit is the time within which a holder must report that its entry was
// removed by force: 2 s and the duration of one RPC.
const forcedLossLimit = 2*time.Second + simAttempt + simSlack

// grantLimit is the time within which the entry at the front must have a holder while its
// connection works: a few RPCs, each of which may be repeated.
const grantLimit = 8 * time.Second

// frontsEvery is how often that is checked.
const frontsEvery = 500 * time.Millisecond

// recheckLimit is recheckAfter of internal/queue: a waiter looks that often whether its entries stand.
const recheckLimit = 30 * time.Second

// checkTaken checks at the end of a schedule that no name was free before MinHold had
// passed since its grant, unless its entry was deleted by force.
func (o *oracle) checkTaken(s *simulation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.mu.Lock()
	skips := slices.Clone(s.skips)
	s.mu.Unlock()
	for _, h := range o.all {
		if h.takenFor == 0 || h.deletion == nil && !o.findDeletion(s, h) || h.deletion.Cause == etcdfake.ByForce {
			continue
		}
		free := h.deletion.At.Sub(s.begin)
		skipped := slices.ContainsFunc(skips, func(at time.Duration) bool { return h.since <= at && at <= free })
		if !skipped && free < h.since+h.takenFor-simSlack {
			s.fail("%s: granted at %v, must be taken for %v, and was free at %v", h.who, h.since, h.takenFor, free)
		}
	}
}

// watchHolders checks all holders, sessions and queues every few milliseconds.
func (s *simulation) watchHolders() {
	r := s.source(2)
	for !s.oracle.done.Load() {
		time.Sleep(time.Millisecond + upTo(r, 30*time.Millisecond))
		s.oracle.checkAll(s)
		if s.stop.Load() {
			time.Sleep(200 * time.Millisecond)
		}
	}
}

func (o *oracle) checkAll(s *simulation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range o.all {
		o.checkHold(s, h)
	}
	for _, c := range s.clients {
		o.checkSession(s, c)
	}
	if s.now()-o.looked > frontsEvery {
		o.looked = s.now()
		o.checkFronts(s)
	}
}

// checkFronts checks that a session whose connection works soon holds by entries that are at the front of their queues,
// or removes them. Otherwise all waiters behind them would be stuck.
func (o *oracle) checkFronts(s *simulation) {
	queues := make(map[string][]*mvccpb.KeyValue)
	attempts := make(map[string]*held) // all entries that one put has created, by one of their keys
	var order []string
	for _, kv := range s.srv.Keys(simEntries) {
		key := string(kv.Key)
		if !isEntry(key) {
			continue
		}
		p := partOf(kv)
		queues[p.prefix] = append(queues[p.prefix], kv)
		id := fmt.Sprint(kv.CreateRevision, owner(kv))
		if attempts[id] == nil {
			attempts[id] = &held{who: owner(kv), rev: kv.CreateRevision, lease: kv.Lease}
			order = append(order, id)
		}
		attempts[id].parts = append(attempts[id].parts, p)
	}
	fronts := make(map[string]time.Duration)
	for _, id := range order {
		a := attempts[id]
		if _, ahead, _ := a.judge(func(prefix string) []*mvccpb.KeyValue { return queues[prefix] }); ahead != "" {
			continue
		}
		if p := a.parts[0]; isPermit(p.key) && !s.fits(a, queues[p.prefix]) {
			continue
		}
		since, known := o.fronts[id]
		if !known {
			since = s.now()
		}
		fronts[id] = since
		for _, c := range s.clients {
			if int64(c.session().Lease()) != a.lease || c.session().Check() != nil {
				continue
			}
			limit := grantLimit
			if len(a.parts) < len(o.wanted[a.who]) { // one was deleted by hand, which the next read finds
				limit += recheckLimit
			}
			since := max(since, time.Duration(c.healed.Load()), o.heldUntil(s, a))
			if d := s.now() - since; d > limit {
				s.fail("session %d: %s has been at the front for %v without a holder", c.id, a.parts[0].key, d)
			}
		}
	}
	o.fronts = fronts
}

// heldUntil returns until when there was a hold by the entries of an attempt, or 0 if there was none.
func (o *oracle) heldUntil(s *simulation, a *held) time.Duration {
	var until time.Duration
	for _, h := range o.all {
		switch {
		case h.rev != a.rev || !slices.Contains(h.parts, a.parts[0]):
		case h.ended == nil:
			return s.now()
		default:
			until = max(until, h.until) // that of a writer, or of the reader that it has become
		}
	}
	return until
}

// checkSession checks that a lost lease stays lost.
func (o *oracle) checkSession(s *simulation, c *simClient) {
	lease, err := c.session().Lease(), c.session().Check()
	switch {
	case lease != c.session().Lease(): // the lease was replaced between the two calls
	case errors.Is(err, holdfast.ErrLost):
		c.lost = lease
	case err != holdfast.ErrClosed && lease == c.lost:
		s.fail("session %d: lease %x was lost, and now Check returns %v", c.id, int64(lease), err)
	}
}

// checkHold reads the store first and calls Check afterwards. No entry can join the queue ahead of another. So if an
// entry of a holder is not at the front, it was deleted, and a later Check must report that.
func (o *oracle) checkHold(s *simulation, h *held) {
	var missing, ahead string
	var stand []*mvccpb.KeyValue
	if h.ended == nil {
		missing, ahead, stand = h.judge(s.srv.Keys)
	}
	err := h.lock.Check()
	if h.ended != nil {
		if err == nil || errors.Is(err, holdfast.ErrSuspended) {
			s.fail("%s: Check returned %v and now %v", h.who, h.ended, err)
		}
		return
	}
	if err != nil && !errors.Is(err, holdfast.ErrSuspended) {
		h.ended, h.until = err, s.now()
		if errors.As(err, new(*holdfast.KickError)) {
			o.asked++
		}
		s.log(fmt.Sprintf("%s: ended, %v", h.who, err))
		return
	}
	for _, kv := range stand {
		s.checkNotice(h, kv.Value, err)
	}
	switch {
	case ahead != "":
		s.fail("%s: Check returns %v, and %s is ahead", h.who, err, ahead)
		return
	case missing == "":
		return
	case h.deletion == nil && !o.findDeletion(s, h):
		s.fail("%s: Check returns %v, and %q never existed", h.who, err, missing)
		return
	}
	switch {
	case h.deletion.Cause == etcdfake.ByExpiry && s.wasMoved(h) && !s.couldBeTold(h):
		o.checkForcedLoss(s, h, err)
	case h.deletion.Cause == etcdfake.ByForce:
		o.checkForcedLoss(s, h, err)
	case h.deletion.Cause == etcdfake.ByExpiry && errors.Is(err, holdfast.ErrSuspended):
		s.fail("%s: the entry expired at %v, and Check reports only a suspension", h.who, h.deletion.At.Sub(s.begin))
	case err == nil:
		s.fail("%s: Check returns %v, and %s was deleted at %v (cause %d)", h.who, err, h.deletion.Kv.Key,
			h.deletion.At.Sub(s.begin), h.deletion.Cause)
	}
}

// checkForcedLoss checks a hold whose entry was removed although its lease lives. It is polled from the grant on, and
// cannot learn of it while its connection fails.
func (o *oracle) checkForcedLoss(s *simulation, h *held, check error) {
	since := max(h.deletion.At.Sub(s.begin), time.Duration(h.client.healed.Load()), h.since)
	if d := s.now() - since; d > forcedLossLimit && check == nil {
		s.fail("%s: Check returns %v, %v after the entry was removed by force", h.who, check, d)
	}
}

// findDeletion sets h.deletion and reports whether an entry of h was deleted.
func (o *oracle) findDeletion(s *simulation, h *held) bool {
	for _, p := range h.parts {
		for _, c := range s.srv.History(p.key) {
			// An earlier entry may have had the same key.
			if c.Deleted && c.Prev.CreateRevision == h.rev && (h.deletion == nil || c.Revision < h.deletion.Revision) {
				h.deletion = &c
			}
		}
	}
	if h.deletion != nil && h.deletion.Cause == etcdfake.ByForce {
		o.forced++
	}
	return h.deletion != nil
}
