package robustness

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
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

	together   int // readers that were granted while another one held
	sets       int // attempts in several queues that were granted
	downgrades int
	minHolds   int // confirmed releases of holds with MinHold
}

// promptLimit is the time within which a waiter must hold after a release while nothing fails: the lock delay.
const promptLimit = time.Second

// part is a queue that an acquisition has an entry in.
type part struct {
	prefix string // of the queue
	reads  bool
	key    string // of the entry, once that is known
}

func lockPart(name string, reads bool) part {
	return part{prefix: simEntries + "lock/" + name + "/@/", reads: reads}
}

// excludes reports whether p is held alone among what uses the queue as the other one does.
func (p part) excludes(other part) bool { return p.prefix == other.prefix && !(p.reads && other.reads) }

// of reports whether an entry of p's queue is of its mode.
func (p part) of(kv *mvccpb.KeyValue) bool { return isReader(string(kv.Key)) == p.reads }

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
	o.checkPrompt(s, h)
	o.past = nil
	o.checkHold(s, h)
	for _, former := range o.all {
		if !former.excludes(h) || former.who == h.who && former.rev == h.rev { // a downgrade
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

// find finds the entries of h, which must have been put at one revision.
func (o *oracle) find(s *simulation, h *held) {
	if h.rev == 0 {
		for _, c := range o.history(s, h.lock.Key()) {
			if isNew(c) && c.Revision <= h.lock.AcquiredRevision() {
				h.rev = c.Revision
			}
		}
	}
	for i := range h.parts {
		p := &h.parts[i]
		for _, c := range o.history(s, p.prefix) {
			if lease, _ := queue.LeaseOf(string(c.Kv.Key)); isNew(c) && c.Revision == h.rev && p.of(c.Kv) && lease == h.lock.Lease() {
				p.key = string(c.Kv.Key)
			}
		}
		if p.key == "" {
			s.fail("%s: granted, and no entry below %s was put at revision %d", h.who, p.prefix, h.rev)
		}
	}
}

// checkVerified checks that h could hold at the revision at which it was seen to.
func (o *oracle) checkVerified(s *simulation, h *held) {
	at := h.lock.AcquiredRevision()
	missing, ahead, _ := h.judge(func(prefix string) []*mvccpb.KeyValue { return o.queueAt(s, prefix, at) })
	if missing != "" || ahead != "" {
		s.fail("%s: granted at revision %d, where of its entries %q was missing, and %q was ahead", h.who, at, missing, ahead)
	}
}

// judge returns an entry of h that is missing, one that excludes it and is ahead of it, and those that stand.
func (h *held) judge(read func(prefix string) []*mvccpb.KeyValue) (missing, ahead string, stand []*mvccpb.KeyValue) {
	for _, p := range h.parts {
		found := false
		for _, kv := range read(p.prefix) {
			other := partOf(kv)
			switch {
			case string(kv.Key) == p.key && kv.CreateRevision == h.rev:
				found, stand = true, append(stand, kv)
			case p.excludes(other) && (kv.CreateRevision < h.rev || kv.CreateRevision == h.rev && !ownedBy(kv, h.who)):
				ahead = string(kv.Key)
			}
		}
		if !found {
			missing = p.key
		}
	}
	return missing, ahead, stand
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
// can hold the waiter up: one entry was ahead when it queued, and the network and the cluster work.
func (o *oracle) checkPrompt(s *simulation, granted *held) {
	p, history := granted.parts[0], o.history(s, granted.parts[0].prefix)
	if !s.profile.calm || len(granted.parts) > 1 {
		return
	}
	var ahead []*mvccpb.KeyValue
	for _, kv := range o.queueAt(s, p.prefix, granted.rev-1) {
		if p.excludes(partOf(kv)) {
			ahead = append(ahead, kv)
		}
	}
	var put, free time.Duration
	for _, c := range history {
		switch {
		case isNew(c) && ownedBy(c.Kv, granted.who) && c.Revision != granted.rev, // queued again
			c.Deleted && c.Revision == granted.rev, // handed off
			c.Deleted && len(ahead) == 1 && c.Prev.CreateRevision == ahead[0].CreateRevision && c.Cause != etcdfake.ByRequest:
			return
		case c.Revision == granted.rev:
			put = c.At.Sub(s.begin)
		case c.Deleted && len(ahead) == 1 && c.Prev.CreateRevision == ahead[0].CreateRevision:
			free = c.At.Sub(s.begin)
		}
	}
	troubled := max(time.Duration(granted.client.healed.Load()), time.Duration(s.troubled.Load()))
	if len(ahead) != 1 || troubled >= put || free < put+time.Second/2 {
		return
	}
	if d := granted.since - free; d > promptLimit {
		s.fail("%s: granted %v after the release of the only entry that was ahead", granted.who, d)
	}
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

// hadOneAhead reports whether an entry stood in a queue when another was put at a revision.
func hadOneAhead(history []etcdfake.Change, rev int64) bool {
	existing := 0
	for _, c := range history {
		switch {
		case c.Revision >= rev:
			return existing > 0
		case c.Deleted:
			existing--
		case isNew(c):
			existing++
		}
	}
	return false
}

// history returns the changes below a prefix. A grant reads each prefix once, since that takes most of the time.
func (o *oracle) history(s *simulation, prefix string) []etcdfake.Change {
	changes, known := o.past[prefix]
	if !known {
		changes = s.srv.History(prefix)
		if o.past != nil {
			o.past[prefix] = changes
		}
	}
	return changes
}

// queueAt returns the entries below a prefix as they stood at a revision.
func (o *oracle) queueAt(s *simulation, prefix string, rev int64) []*mvccpb.KeyValue {
	at := make(map[string]*mvccpb.KeyValue)
	for _, c := range o.history(s, prefix) {
		switch {
		case c.Revision > rev:
		case c.Deleted:
			delete(at, string(c.Kv.Key))
		default:
			at[string(c.Kv.Key)] = c.Kv
		}
	}
	return slices.Collect(maps.Values(at))
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

// isEntry reports whether key is the key of an entry.
func isEntry(key string) bool { return strings.Contains(key, "/@/") }

// isReader reports whether an entry is one of readers.
func isReader(key string) bool { return strings.Contains(key, "/@/!s") }

// isNew reports whether a change is the put of a new key.
func isNew(c etcdfake.Change) bool { return !c.Deleted && c.Kv.CreateRevision == c.Revision }

// owner returns the owner that the entry of a lock has. It does not decode the whole value, which would take too long.
func owner(kv *mvccpb.KeyValue) string {
	_, from, _ := bytes.Cut(kv.Value, []byte(`"owner":"`))
	text, _, _ := bytes.Cut(from, []byte(`"`))
	return string(text)
}

// ownedBy reports whether the entry of a lock has that owner.
func ownedBy(kv *mvccpb.KeyValue, who string) bool {
	return bytes.Contains(kv.Value, []byte(`"owner":"`+who+`"`))
}

// checkRecord checks at the end of a schedule that each attempt had all of its entries put at one revision, and that no
// two that exclude each other were.
func (o *oracle) checkRecord(s *simulation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var changes []etcdfake.Change // at one revision
	judge := func() {
		for i, c := range changes {
			p := partOf(c.Kv)
			wanted, parts := o.wanted[owner(c.Kv)], 0
			for j, other := range changes {
				if ownedBy(other.Kv, owner(c.Kv)) {
					parts++
				} else if j > i && p.excludes(partOf(other.Kv)) {
					s.fail("%s and %s were put at one revision, %d", c.Kv.Key, other.Kv.Key, c.Revision)
				}
			}
			if wanted != nil && parts != len(wanted) {
				s.fail("%s: %d entries were put at revision %d, and the attempt has %d", owner(c.Kv), parts, c.Revision,
					len(wanted))
			}
		}
		changes = nil
	}
	for _, c := range s.srv.History(simEntries) {
		if !isEntry(string(c.Kv.Key)) || !isNew(c) {
			continue
		}
		if len(changes) > 0 && changes[0].Revision != c.Revision {
			judge()
		}
		changes = append(changes, c)
	}
	judge()
}

// partOf returns the part that an entry is.
func partOf(kv *mvccpb.KeyValue) part {
	key := string(kv.Key)
	return part{prefix: key[:strings.LastIndex(key, "/")+1], reads: isReader(key), key: key}
}
