package simulation

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/tests/internal/family"
	"github.com/holdfast-go/holdfast/tests/models/leasemodel"
	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
	"github.com/holdfast-go/holdfast/tests/models/queuemodel"
	"github.com/holdfast-go/holdfast/tests/models/semmodel"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// A hold is an acquisition whose Check is called again and again.
type hold struct {
	*oracle.Hold
	held    family.Held
	process *process
	ended   error // the first result of Check that reported the end
	watched bool  // its lease, when Check last returned nil
}

// observe calls Check. It is called with s.mu held, so that no two calls overlap.
func (s *simulation) observe(h *hold) {
	err := h.held.Check()
	now := s.now()
	switch {
	case h.ended != nil:
		if err == nil || errors.Is(err, holdfast.ErrSuspended) {
			s.violations = append(s.violations, fmt.Sprintf("%s: Check returned %v and now %v", h.Who, h.ended, err))
		}
	case err == nil:
		h.watched = lease.Open(h.process.session()).Lease().Watched()
		h.SlowPolls = h.SlowPolls || !h.watched && s.maySlowPolls(h.process)
		if h.Last = now; h.First == 0 {
			h.First = now
		}
	case errors.Is(err, holdfast.ErrSuspended):
		h.Suspended = now
	default:
		h.ended, h.Ended = err, now
		if errors.Is(err, holdfast.ErrLost) {
			h.Told = now
		}
		if errors.As(err, new(*holdfast.KickError)) {
			s.asked++
		}
		var lost *holdfast.LostError
		if h.watched && errors.As(err, &lost) && lost.Cause == holdfast.CauseRevoked {
			s.quietly++
		}
	}
}

// observeAll observes all that are held.
func (s *simulation) observeAll() {
	for _, h := range s.holds {
		if h.ended == nil {
			s.observe(h)
		}
	}
}

// granted records an acquisition that has returned.
func (s *simulation) granted(p *process, who string, held family.Held, parts ...oracle.Part) *hold {
	h := &hold{Hold: family.Hold(who, p.name(), held, parts...), held: held, process: p}
	h.Granted = s.now()
	s.log(fmt.Sprintf("%s: granted, token %v", who, h.Token))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds = append(s.holds, h)
	s.record.Holds = append(s.record.Holds, h.Hold)
	s.observeAll() // those that are held at this moment
	return h
}

// wants records what a call is about to acquire. who is the owner of its entries, and of no other call's.
func (s *simulation) wants(who string, parts []oracle.Part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record.Wanted == nil {
		s.record.Wanted = make(map[string][]oracle.Part)
	}
	s.record.Wanted[who] = parts
}

// released checks the result of a release.
func (s *simulation) released(h *hold, err error) {
	s.log(fmt.Sprintf("%s: released, %v", h.Who, err))
	s.mu.Lock()
	if err == nil && h.Unlocked == 0 {
		h.Unlocked = s.now()
	}
	s.mu.Unlock()
	if err != nil && !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrOutcomeUnknown) {
		s.fail("%s: the release returned %v", h.Who, err)
	}
}

// maySlowPolls reports whether a request of a process and its first copies may all meet sick members, so that they take
// longer than half a lock delay. With one endpoint copies are sent one at a time, while other requests go in between.
func (s *simulation) maySlowPolls(c *process) bool {
	sick := s.sick.Load()
	return sick > 1 || sick == 1 && c.oneEndpoint
}

// watchHolds observes all holds and sessions every few milliseconds, until all work has ended.
func (s *simulation) watchHolds() {
	r := s.source(2)
	for !s.ended.Load() {
		time.Sleep(time.Millisecond + family.UpTo(r, 30*time.Millisecond))
		s.mu.Lock()
		s.observeAll()
		for _, p := range s.processes {
			s.observeSession(p)
		}
		s.mu.Unlock()
	}
}

// checkEnded checks at the end of a schedule that what had ended has not come back.
func (s *simulation) checkEnded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.holds {
		s.observe(h)
	}
}

// observeSession checks that a lost lease stays lost, and records when a lease ended.
func (s *simulation) observeSession(p *process) {
	id, err := p.session().Lease(), p.session().Check()
	if id != p.session().Lease() { // the lease was replaced between the two calls
		return
	}
	if p.lease != id {
		s.endLease(p)
		p.lease = id
		s.record.Leases[id] = oracle.Lease{Process: p.name()}
	}
	switch l := s.record.Leases[id]; {
	case errors.Is(err, holdfast.ErrLost) || errors.Is(err, holdfast.ErrClosed):
		s.endLease(p)
	case l.Ended != 0:
		s.violations = append(s.violations, fmt.Sprintf("session %d: lease %x had ended, and now Check returns %v", p.id,
			int64(id), err))
	}
}

// endLease records that a session does not use its last lease anymore.
func (s *simulation) endLease(p *process) {
	if l, known := s.record.Leases[p.lease]; known && l.Ended == 0 {
		l.Ended = s.now()
		s.record.Leases[p.lease] = l
	}
}

// paused records that all processes were paused, which the time of a schedule does not count: the names that MinHold
// keeps are free sooner.
func (s *simulation) paused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.holds {
		if h.TakenUntil > s.now() {
			h.TakenUntil, h.Unlocked = 0, 0
		}
	}
}

// noteFault records that a fault of a connection lasts until d from now at most.
func (s *simulation) noteFault(p *process, d time.Duration) {
	p.faultsMu.Lock()
	defer p.faultsMu.Unlock()
	now := s.now()
	if n := len(p.faults); n > 0 && p.faults[n-1].To >= now {
		p.faults[n-1].To = max(p.faults[n-1].To, now+d)
		return
	}
	p.faults = append(p.faults, oracle.Fault{Process: p.name(), From: now, To: now + d})
}

// judge has the oracle judge the schedule.
func (s *simulation) judge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.Lossy = true
	s.record.Fast = s.profile.latency <= 50*time.Millisecond
	s.record.Prompt = s.profile.calm
	for _, p := range s.processes {
		s.record.Faults = append(s.record.Faults, p.faults...)
	}
	history := s.srv.History("")
	keys := make(map[string]bool) // session keys that were deleted, by key and revision
	at := func(key string, rev int64) string { return fmt.Sprint(key, " ", rev) }
	for _, c := range history {
		if c.Deleted && !oracle.IsEntry(string(c.Kv.Key)) {
			keys[at(string(c.Kv.Key), c.Revision)] = true
		}
	}
	for _, c := range history {
		when := c.At.Sub(s.begin)
		change := oracle.Change{Revision: c.Revision, After: when, Before: when, Deleted: c.Deleted, Kv: c.Kv, Prev: c.Prev}
		switch c.Cause {
		case etcdfake.ByExpiry, etcdfake.ByRevoke:
			change.Cause = oracle.ByLease
		case etcdfake.ByForce:
			change.Cause = oracle.ByDeletion
			if c.Deleted && keys[at(oracle.SessionKey(clientv3.LeaseID(c.Prev.Lease)), c.Revision)] {
				change.Cause = oracle.ByRevocation
			}
		}
		s.record.Changes = append(s.record.Changes, change)
	}
	s.verdict = s.record.Judge()
	s.violations = append(s.violations, s.verdict.Violations...)
	s.follow()
}

// say records a step that a session says of an entry, or of its lease. That is late if its clock may have jumped.
func (s *simulation) say(step lease.Step) {
	if step.Key != "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.steps = append(s.steps, step)
		return
	}
	s.renewalsMu.Lock()
	defer s.renewalsMu.Unlock()
	s.renewals = append(s.renewals, leasemodel.Said{Step: step, Late: s.profile.skip})
}

// follow compares the steps with the models.
func (s *simulation) follow() {
	s.renewalsMu.Lock()
	leases := leasemodel.Follow(s.renewals)
	s.renewalsMu.Unlock()
	history := modeltrace.NewHistory(&s.record, s.steps)
	entries, permits := queuemodel.Follow(history), semmodel.Follow(history)
	s.violations = slices.Concat(s.violations, entries.Refused, permits.Refused, leases.Refused)
	for _, counts := range []map[string]int{entries.Counts, permits.Counts, leases.Counts} {
		maps.Copy(s.verdict.Counts, counts)
	}
}
