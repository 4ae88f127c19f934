package robustness

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/queue"
)

// oracle compares what holders observe with the history of the store.
type oracle struct {
	done atomic.Bool

	mu      sync.Mutex // protects what follows; held during a check, so that checks do not overlap
	all     []*held
	wanted  map[string][]part            // by owner
	fronts  map[string]time.Duration     // by attempt: since when it is at the front of all its queues
	looked  time.Duration                // when checkFronts did last
	past    map[string][]etcdfake.Change // by prefix, during a grant
	granted int
	forced  int
	asked   int // holds that an administrator has ended

	together   int // readers, or permits, that were granted while another one held
	marked     int // permits that were granted after a wait
	sets       int // attempts in several queues that were granted
	downgrades int
	minHolds   int // confirmed releases of holds with MinHold
}

// promptLimit is the time within which a waiter must hold after a release while nothing fails: the lock delay.
const promptLimit = time.Second

// part is a queue that an acquisition has an entry in.
type part struct {
	prefix string // of the queue
	reads  bool   // as a reader does, or a permit: several are held at a time
	key    string // of the entry, once that is known
}

func lockPart(name string, reads bool) part {
	return part{prefix: simEntries + "lock/" + name + "/@/", reads: reads}
}

// excludes reports whether p is held alone among what uses the queue as the other one does.
func (p part) excludes(other part) bool { return p.prefix == other.prefix && !(p.reads && other.reads) }

// of reports whether an entry of p's queue is of its mode.
func (p part) of(kv *mvccpb.KeyValue) bool { return partOf(kv).reads == p.reads }

// holding is what an acquisition has returned.
type holding interface {
	Key() string // of its first entry
	AcquiredRevision() int64
	Lease() clientv3.LeaseID
	Check() error
	Done() <-chan struct{}
}

// held is one acquisition. The create revision identifies its entries, because a session reuses keys.
type held struct {
	who          string
	parts        []part
	rev          int64
	lease        int64         // of the entries, for checkFronts
	token        fencing.Token // 0: it reads
	client       *simClient
	lock         holding
	since, until time.Duration    // from the grant to the end
	ended        error            // the first result of Check that reported the end
	deletion     *etcdfake.Change // of the first entry that was deleted; nil: none, as far as is known
	takenFor     time.Duration    // MinHold, by the clock of the store; 0 unless the release was confirmed
}

// want records what a call is about to acquire. who is the owner of its entries, and of no other call's.
func (o *oracle) want(who string, parts []part) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.wanted == nil {
		o.wanted = make(map[string][]part)
	}
	o.wanted[who] = parts
}

func (o *oracle) addDowngrade() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.downgrades++
}

// grant records an acquisition that has returned.
func (o *oracle) grant(s *simulation, c *simClient, who string, lk holding, parts ...part) *held {
	h := &held{who: who, client: c, lock: lk, since: s.now(), parts: slices.Clone(parts)}
	if lk, ok := lk.(fencing.Source); ok {
		h.token, h.rev = lk.Token(), lk.Token().Revision()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.past = make(map[string][]etcdfake.Change)
	o.find(s, h)
	s.log(fmt.Sprintf("%s: granted, token %v, revision %d", who, h.token, h.rev))
	o.granted++
	o.checkVerified(s, h)
	o.checkRevoked(s, h)
	if !slices.ContainsFunc(o.all, h.continues) {
		o.checkPrompt(s, h)
	}
	o.past = nil
	o.checkHold(s, h)
	if p, ok := lk.(heldPermit); ok {
		o.checkPermit(s, h, p)
	}
	for _, former := range o.all {
		if !former.excludes(h) || h.continues(former) {
			continue
		}
		if former.ended == nil {
			o.checkHold(s, former)
		}
		if former.rev >= h.rev && h.ended == nil && (h.deletion == nil || h.deletion.Cause != etcdfake.ByForce) {
			s.fail("%s: granted by entries of revision %d after %s, whose were of revision %d", who, h.rev, former.who,
				former.rev)
		}
	}
	if len(parts) > 1 {
		o.sets++
	}
	if h.reads() && slices.ContainsFunc(o.all, func(other *held) bool {
		return other.reads() && other.shares(h) && other.ended == nil && other.lock.Check() == nil
	}) {
		o.together++
	}
	o.all = append(o.all, h)
	return h
}

// checkRevoked checks that a waiter is not granted before a holder whose lease was revoked is told. It excludes
// acquisitions that did not wait for that holder, which no lock delay holds back, and holders whose connections failed,
// which cannot be told.
func (o *oracle) checkRevoked(s *simulation, granted *held) {
	for _, h := range o.all {
		if !h.excludes(granted) || h.ended != nil || h.lock.Check() != nil {
			continue
		}
		revoked, rev, at := o.revokedAt(s, h)
		if !revoked || time.Duration(h.client.healed.Load()) > at || !o.waited(s, granted, h, rev) {
			continue
		}
		s.fail("%s: granted revision %d before %s, revision %d, was told that its lease was revoked at %v",
			granted.who, granted.rev, h.who, h.rev, at)
	}
}

// checkPrompt checks that no lock delay follows a release, also not that of a Close. It looks only where nothing else
// can hold the waiter up: one entry was ahead when it queued, and stood until its watch was armed, its session key
// outlived it, and the network and the cluster work.
func (o *oracle) checkPrompt(s *simulation, granted *held) {
	if !s.profile.calm || len(granted.parts) > 1 {
		return
	}
	p := granted.parts[0]
	var ahead []*mvccpb.KeyValue
	for _, kv := range o.queueAt(s, p.prefix, granted.rev-1) {
		if p.excludes(partOf(kv)) {
			ahead = append(ahead, kv)
		}
	}
	if len(ahead) != 1 {
		return
	}
	var put, free time.Duration
	for _, c := range o.history(s, p.prefix) {
		switch {
		case isNew(c) && ownedBy(c.Kv, granted.who) && c.Revision != granted.rev, // queued again
			c.Deleted && c.Revision == granted.rev: // handed off
			return
		case c.Revision == granted.rev:
			put = c.At.Sub(s.begin)
		case c.Deleted && c.Prev.CreateRevision == ahead[0].CreateRevision:
			free = c.At.Sub(s.begin)
			if c.Cause != etcdfake.ByRequest || o.sessionEnded(s, granted.client, c) {
				return
			}
		}
	}
	troubled := max(time.Duration(granted.client.healed.Load()), time.Duration(s.troubled.Load()))
	if d := granted.since - free; troubled < put && free > put+time.Second && d > promptLimit {
		s.fail("%s: granted %v after the release of the only entry that was ahead", granted.who, d)
	}
}

// sessionEnded reports whether the session key of a deleted entry had been deleted as well.
func (o *oracle) sessionEnded(s *simulation, c *simClient, entry etcdfake.Change) bool {
	id, _ := queue.LeaseOf(string(entry.Kv.Key))
	key := lease.Open(c.session().Ref()).SessionKey(id)
	return slices.ContainsFunc(o.history(s, key), func(k etcdfake.Change) bool {
		return k.Deleted && k.Revision <= entry.Revision
	})
}

// revokedAt returns when and at which revision an entry of h was deleted by force, and whether its session key was
// deleted at the same revision, as by a revocation.
func (o *oracle) revokedAt(s *simulation, h *held) (revoked bool, rev int64, at time.Duration) {
	for _, c := range o.history(s, h.parts[0].key) {
		if c.Deleted && c.Prev.CreateRevision == h.rev && c.Cause == etcdfake.ByForce {
			key := lease.Open(h.client.session().Ref()).SessionKey(clientv3.LeaseID(c.Prev.Lease))
			for _, k := range o.history(s, key) {
				revoked = revoked || k.Deleted && k.Revision == c.Revision
			}
			rev, at = c.Revision, c.At.Sub(s.begin)
		}
	}
	return revoked, rev, at
}

// waited reports whether the caller of granted waited behind h when that was revoked at rev. It may have had another
// entry then: that of an earlier attempt, or, if it waited in a line in memory, one that was handed off to it. With
// mutexes alone, those that queued later wait for one that waited, and count as well.
func (o *oracle) waited(s *simulation, granted, h *held, rev int64) bool {
	for _, p := range granted.parts {
		if !slices.ContainsFunc(h.parts, p.excludes) {
			continue
		}
		history := o.history(s, p.prefix)
		if !s.family && hadOneAhead(history, granted.rev) {
			return true
		}
		own := map[int64]bool{granted.rev: true} // create revisions
		for _, put := range slices.Backward(history) {
			if isNew(put) && p.of(put.Kv) && (own[put.Revision] || ownedBy(put.Kv, granted.who)) {
				own[put.Revision] = true
				for _, c := range history {
					if c.Deleted && c.Revision == put.Revision && c.Prev.Lease == put.Kv.Lease && p.of(c.Kv) {
						own[c.Prev.CreateRevision] = true
					}
				}
			}
		}
		for _, kv := range o.queueAt(s, p.prefix, rev-1) {
			if p.of(kv) && own[kv.CreateRevision] && kv.CreateRevision > h.rev {
				return true
			}
		}
	}
	return false
}

// taken records that a release was confirmed and that the name must stay taken.
func (o *oracle) taken(h *held, d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h.takenFor = d
	o.minHolds++
}

// reads reports whether it excludes no reader.
func (h *held) reads() bool {
	return !slices.ContainsFunc(h.parts, func(p part) bool { return !p.reads })
}

// continues reports whether h is the reader that a former writer has become.
func (h *held) continues(former *held) bool { return former.who == h.who && former.rev == h.rev }

// shares reports whether two have a queue in common.
func (h *held) shares(other *held) bool {
	return slices.ContainsFunc(h.parts, func(p part) bool {
		return slices.ContainsFunc(other.parts, func(q part) bool { return p.prefix == q.prefix })
	})
}

// excludes reports whether two may not be held at the same time.
func (h *held) excludes(other *held) bool {
	return slices.ContainsFunc(h.parts, func(p part) bool { return slices.ContainsFunc(other.parts, p.excludes) })
}
