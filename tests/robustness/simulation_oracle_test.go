package robustness

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/locker"
)

// forcedLossLimit is the time within which a holder must report that its entry was
// removed by force: 2 s and the duration of one RPC.
const forcedLossLimit = 2*time.Second + simAttempt + simSlack

// grantLimit is the time within which the entry at the front must have a holder while its
// connection works: a few RPCs, each of which may be repeated.
const grantLimit = 8 * time.Second

// oracle compares what holders observe with the history of the store.
type oracle struct {
	done atomic.Bool

	mu      sync.Mutex // protects what follows; held during a check, so that checks do not overlap
	all     []*held
	highest map[string]fencing.Token
	fronts  map[string]front // by prefix of their queue
	granted int
	forced  int
	asked   int // holds that an administrator has ended

	together int // readers, or permits, that were granted while another one held
	marked   int // permits that were granted after a wait
	minHolds int // confirmed releases of holds with MinHold
}

// holding is a Lock, a ReadLock, a Permit or a Term.
type holding interface {
	Key() string
	Check() error
	Done() <-chan struct{}
}

// held is one acquisition. The create revision identifies its entry, because a session
// reuses keys.
type held struct {
	who, prefix, key string
	rev              int64
	token            fencing.Token // 0: it reads, or is a permit
	weight           int           // of a permit; otherwise 0
	client           *simClient
	lock             holding
	since, until     time.Duration    // from the grant to the end
	ended            error            // the first result of Check that reported the end
	deletion         *etcdfake.Change // nil: not deleted, as far as is known
	takenFor         time.Duration    // MinHold, by the clock of the store; 0 unless the release was confirmed
}

// grant records an acquisition that has returned.
func (o *oracle) grant(s *simulation, c *simClient, name, who string, lk holding) *held {
	h := &held{who: who, client: c, lock: lk, since: s.now(), key: lk.Key(),
		prefix: lk.Key()[:strings.LastIndex(lk.Key(), "/")+1]}
	switch lk := lk.(type) {
	case fencing.Source:
		h.token, h.rev = lk.Token(), lk.Token().Revision()
	case *locker.ReadLock:
		for _, c := range s.srv.History(h.key) {
			if !c.Deleted && c.Revision <= lk.AcquiredRevision() {
				h.rev = c.Kv.CreateRevision
			}
		}
	}
	s.log(fmt.Sprintf("%s: granted, token %v, %s", who, h.token, h.key))
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.highest == nil {
		o.highest = make(map[string]fencing.Token)
	}
	o.granted++
	o.checkRevoked(s, h)
	o.checkHold(s, h)
	for _, former := range o.all {
		if former.ended == nil && former.excludes(h) {
			o.checkHold(s, former)
		}
	}
	if !h.reads() && o.highest[name] >= h.token && (h.deletion == nil || h.deletion.Cause != etcdfake.ByForce) {
		s.fail("%s: granted token %v after token %v", who, h.token, o.highest[name])
	}
	o.highest[name] = max(o.highest[name], h.token)
	if h.reads() && slices.ContainsFunc(o.all, func(other *held) bool {
		return other.prefix == h.prefix && other.ended == nil && other.lock.Check() == nil
	}) {
		o.together++
	}
	o.all = append(o.all, h)
	return h
}

// taken records that a release was confirmed and that the name must stay taken.
func (o *oracle) taken(h *held, d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h.takenFor = d
	o.minHolds++
}

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

// checkRevoked checks that a waiter is not granted before a holder whose lease was revoked
// is told. It excludes acquisitions that did not wait, which no lock delay holds back, and
// holders whose connections failed, which cannot be told.
func (o *oracle) checkRevoked(s *simulation, granted *held) {
	for _, h := range o.all {
		if !h.excludes(granted) || h.ended != nil || h.lock.Check() != nil {
			continue
		}
		revoked, rev, at := s.revokedAt(h)
		if !revoked || time.Duration(h.client.healed.Load()) > at || !s.waited(granted) {
			continue
		}
		// What queued after the revocation may wait for entries that need not know of it: a writer for other
		// readers, a reader for a writer that leaves while another reader waits for the lock delay.
		if (h.reads() || granted.reads()) && granted.rev > rev {
			continue
		}
		s.fail("%s: granted token %v before %s, token %v, was told that its lease was revoked at %v",
			granted.who, granted.token, h.who, h.token, at)
	}
}

// revokedAt returns when and at which revision the entry of h was deleted by force, and whether its
// session key was deleted at the same revision, as by a revocation.
func (s *simulation) revokedAt(h *held) (revoked bool, rev int64, at time.Duration) {
	for _, c := range s.srv.History(h.key) {
		if c.Deleted && c.Prev.CreateRevision == h.rev && c.Cause == etcdfake.ByForce {
			key := lease.Open(h.client.sess.Ref()).SessionKey(clientv3.LeaseID(c.Prev.Lease))
			for _, k := range s.srv.History(key) {
				revoked = revoked || k.Deleted && k.Revision == c.Revision
			}
			rev, at = c.Revision, c.At.Sub(s.begin)
		}
	}
	return revoked, rev, at
}

// reads reports whether it is a ReadLock.
func (h *held) reads() bool { return h.token == 0 }

// excludes reports whether two may not be held at the same time.
func (h *held) excludes(other *held) bool {
	return h.prefix == other.prefix && !(h.reads() && other.reads())
}

// isReader reports whether an entry is one of readers.
func isReader(key string) bool { return strings.Contains(key, "/@/!s") }

// waited reports whether a conflicting entry was ahead of that of h when it was put.
func (s *simulation) waited(h *held) bool {
	existing := make(map[string]bool)
	for _, c := range s.srv.History(h.prefix) {
		switch {
		case c.Revision >= h.rev:
			return len(existing) > 0
		case h.reads() && isReader(string(c.Kv.Key)):
		case c.Deleted:
			delete(existing, string(c.Kv.Key))
		default:
			existing[string(c.Kv.Key)] = true
		}
	}
	return false
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
	o.checkFronts(s)
}

// front is the entry at the front of a queue.
type front struct {
	rev   int64 // its create revision
	since time.Duration
}

// checkFronts checks that a session whose connection works soon holds by its entry at the
// front, or removes it. Otherwise all waiters behind it would be stuck.
func (o *oracle) checkFronts(s *simulation) {
	seen := make(map[string]bool)
	for _, kv := range s.srv.Keys(simEntries) {
		key := string(kv.Key)
		prefix := key[:strings.LastIndex(key, "/")+1]
		if !isEntry(key) || seen[prefix] {
			continue
		}
		seen[prefix] = true
		if o.fronts == nil {
			o.fronts = make(map[string]front)
		}
		if o.fronts[prefix].rev != kv.CreateRevision {
			o.fronts[prefix] = front{kv.CreateRevision, s.now()}
			continue
		}
		for _, c := range s.clients {
			if int64(c.sess.Lease()) != kv.Lease || c.sess.Check() != nil {
				continue
			}
			since := max(o.fronts[prefix].since, time.Duration(c.healed.Load()), o.heldUntil(s, key, kv.CreateRevision))
			if d := s.now() - since; d > grantLimit {
				s.fail("session %d: %s has been at the front for %v without a holder", c.id, key, d)
			}
		}
	}
}

// heldUntil returns until when there was a hold by the entry of key that was created at
// rev, or 0 if there was none.
func (o *oracle) heldUntil(s *simulation, key string, rev int64) time.Duration {
	for _, h := range o.all {
		if h.key == key && h.rev == rev {
			if h.ended == nil {
				return s.now()
			}
			return h.until
		}
	}
	return 0
}

// checkSession checks that a lost lease stays lost.
func (o *oracle) checkSession(s *simulation, c *simClient) {
	lease, err := c.sess.Lease(), c.sess.Check()
	switch {
	case lease != c.sess.Lease(): // the lease was replaced between the two calls
	case errors.Is(err, holdfast.ErrLost):
		c.lost = lease
	case err != holdfast.ErrClosed && lease == c.lost:
		s.fail("session %d: lease %x was lost, and now Check returns %v", c.id, int64(lease), err)
	}
}

// checkHold reads the store first and calls Check afterwards. No entry can join the queue ahead of another. So if the
// entry of a holder is not at the front, it was deleted, and a later Check must report that.
func (o *oracle) checkHold(s *simulation, h *held) {
	var front mvccpb.KeyValue // the entry itself, if no conflicting entry is ahead of it
	if h.ended == nil {
		for _, kv := range s.srv.Keys(h.prefix) {
			if kv.CreateRevision != h.rev && h.reads() && (h.weight > 0 || isReader(string(kv.Key))) {
				continue
			}
			front.Key, front.CreateRevision, front.Value = kv.Key, kv.CreateRevision, kv.Value
			break
		}
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
	if front.CreateRevision == h.rev {
		s.checkNotice(h, front.Value, err)
		return
	}
	if h.deletion == nil && !o.findDeletion(s, h) {
		s.fail("%s: Check returns %v, and %s is at the front", h.who, err, front.Key)
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
		s.fail("%s: Check returns %v, and the entry was deleted at %v (cause %d); at the front is %q", h.who, err,
			h.deletion.At.Sub(s.begin), h.deletion.Cause, front.Key)
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

// findDeletion sets h.deletion and reports whether the entry of h was deleted.
func (o *oracle) findDeletion(s *simulation, h *held) bool {
	for _, c := range s.srv.History(h.key) {
		// An earlier entry may have had the same key.
		if c.Deleted && c.Prev.CreateRevision == h.rev {
			h.deletion = &c
			if c.Cause == etcdfake.ByForce {
				o.forced++
			}
			return true
		}
	}
	return false
}
