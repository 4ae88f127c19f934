package robustness

import (
	"errors"
	"fmt"
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
)

// noticeForced is how soon a holder must notice that its entry was removed by
// force: 2 s, and the time an RPC may take.
const noticeForced = 2*time.Second + simAttempt + simSlack

// noticeFront is how soon a front entry must have a holder, while the
// connection works: a few RPCs, each of which may have to be sent again.
const noticeFront = 8 * time.Second

// oracle compares what holders believe with what the store says.
type oracle struct {
	over atomic.Bool

	mu      sync.Mutex // protects what follows; held during a look, so that looks do not overlap
	all     []*held
	highest map[string]fencing.Token
	fronts  map[string]front // by prefix
	granted int
	forced  int
}

// holding is a Lock or a Term.
type holding interface {
	Key() string
	Token() fencing.Token
	Check() error
	Done() <-chan struct{}
}

// held is one acquisition. Its entry is known by the create revision: a session
// uses the keys of its entries again.
type held struct {
	who, prefix, key string
	rev              int64
	client           *simClient
	lock             holding
	since, until     time.Duration // when it was granted, and ended
	ended            error         // what Check said when it first said that it had ended
	gone             *etcdfake.Change
}

// grant is told every acquisition as it returns.
func (o *oracle) grant(s *simulation, c *simClient, name, who string, lk holding) *held {
	h := &held{who: who, client: c, lock: lk, since: s.now(), key: lk.Key(), rev: lk.Token().Revision(), prefix: lk.Key()[:strings.LastIndex(lk.Key(), "/")+1]}
	s.log(fmt.Sprintf("%s: granted, token %v, %s", who, lk.Token(), h.key))
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.highest == nil {
		o.highest = make(map[string]fencing.Token)
	}
	o.granted++
	o.lookAtRevoked(s, h)
	o.look(s, h)
	if o.highest[name] >= lk.Token() && (h.gone == nil || h.gone.Cause != etcdfake.ByForce) {
		s.fail("%s: granted token %v after token %v", who, lk.Token(), o.highest[name])
	}
	o.highest[name] = max(o.highest[name], lk.Token())
	o.all = append(o.all, h)
	return h
}

// lookAtRevoked: a hold is not granted to one that has waited while another, whose
// lease was revoked under it, was not told. One that never waited is protected by
// the watch of the holder alone, and a holder that cannot be reached is not told.
func (o *oracle) lookAtRevoked(s *simulation, granted *held) {
	for _, h := range o.all {
		if h.prefix != granted.prefix || h.ended != nil || h.lock.Check() != nil {
			continue
		}
		revoked, at := s.revokedAt(h)
		if !revoked || time.Duration(h.client.calm.Load()) > at || !s.waited(granted) {
			continue
		}
		s.fail("%s: granted token %v, and %s, token %v, has not been told that its lease was revoked at %v",
			granted.who, granted.lock.Token(), h.who, h.lock.Token(), at)
	}
}

// revokedAt is when the entry of h went together with its session key, by force.
func (s *simulation) revokedAt(h *held) (revoked bool, at time.Duration) {
	for _, c := range s.srv.History(h.key) {
		if c.Deleted && c.Prev.CreateRevision == h.rev && c.Cause == etcdfake.ByForce {
			key := lease.Open(h.client.sess.Ref()).SessionKey(clientv3.LeaseID(c.Prev.Lease))
			for _, k := range s.srv.History(key) {
				revoked = revoked || k.Deleted && k.Revision == c.Revision
			}
			at = c.At.Sub(s.begin)
		}
	}
	return revoked, at
}

// waited reports whether an entry stood ahead of that of h when it was put.
func (s *simulation) waited(h *held) bool {
	standing := make(map[string]bool)
	for _, c := range s.srv.History(h.prefix) {
		switch {
		case c.Revision >= h.rev:
			return len(standing) > 0
		case c.Deleted:
			delete(standing, string(c.Kv.Key))
		default:
			standing[string(c.Kv.Key)] = true
		}
	}
	return false
}

// watchHolders looks at everybody every few milliseconds.
func (s *simulation) watchHolders() {
	r := s.source(2)
	for !s.oracle.over.Load() {
		time.Sleep(time.Millisecond + upTo(r, 30*time.Millisecond))
		s.oracle.lookAtAll(s)
		if s.stop.Load() {
			time.Sleep(200 * time.Millisecond)
		}
	}
}

func (o *oracle) lookAtAll(s *simulation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range o.all {
		o.look(s, h)
	}
	for _, c := range s.clients {
		o.lookAtSession(s, c)
	}
	o.lookAtFronts(s)
}

// front is the entry that was last seen at the front of a queue.
type front struct {
	rev   int64 // at which it was created
	since time.Duration
}

// lookAtFronts: whoever has the front entry, and a connection that works, soon
// knows, or makes room. Otherwise everybody behind waits for nobody.
func (o *oracle) lookAtFronts(s *simulation) {
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
			since := max(o.fronts[prefix].since, time.Duration(c.calm.Load()), o.held(s, key, kv.CreateRevision))
			if d := s.now() - since; d > noticeFront {
				s.fail("session %d: %s has been in front for %v, and nobody holds", c.id, key, d)
			}
		}
	}
}

// held is until when somebody held the entry of key that was created at rev, as
// those of other queues may have been; 0: nobody ever did.
func (o *oracle) held(s *simulation, key string, rev int64) time.Duration {
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

// lookAtSession: a lease that was once lost stays so.
func (o *oracle) lookAtSession(s *simulation, c *simClient) {
	lease, err := c.sess.Lease(), c.sess.Check()
	switch {
	case lease != c.sess.Lease(): // it was just replaced
	case errors.Is(err, holdfast.ErrLost):
		c.lost = lease
	case err != holdfast.ErrClosed && lease == c.lost:
		s.fail("session %d: lease %x was lost, and now Check says %v", c.id, int64(lease), err)
	}
}

// look asks the store first and the holder afterwards. Nothing can join a
// queue ahead of an entry, so an entry that is not in front is gone; whoever is
// asked after that must know, whatever else happens at this very moment.
func (o *oracle) look(s *simulation, h *held) {
	var front mvccpb.KeyValue
	if h.ended == nil {
		if kvs := s.srv.Keys(h.prefix); len(kvs) > 0 {
			front.Key, front.CreateRevision = kvs[0].Key, kvs[0].CreateRevision
		}
	}
	err := h.lock.Check()
	if h.ended != nil {
		if err == nil || errors.Is(err, holdfast.ErrSuspended) {
			s.fail("%s: was %v and now %v", h.who, h.ended, err)
		}
		return
	}
	if err != nil && !errors.Is(err, holdfast.ErrSuspended) {
		h.ended, h.until = err, s.now()
		s.log(fmt.Sprintf("%s: ended, %v", h.who, err))
		return
	}
	if front.CreateRevision == h.rev {
		return
	}
	if h.gone == nil && !o.removed(s, h) {
		s.fail("%s: Check says %v, and in front is %s", h.who, err, front.Key)
		return
	}
	switch {
	case h.gone.Cause == etcdfake.ByForce:
		// While its connection did harm it could not notice; and a hold is
		// looked after from the time it is one.
		since := max(h.gone.At.Sub(s.begin), time.Duration(h.client.calm.Load()), h.since)
		if d := s.now() - since; d > noticeForced && err == nil {
			s.fail("%s: Check says %v, %v after the entry was removed by force", h.who, err, d)
		}
	case h.gone.Cause == etcdfake.ByExpiry && errors.Is(err, holdfast.ErrSuspended):
		s.fail("%s: expired at %v, and is only told that it is suspended", h.who, h.gone.At.Sub(s.begin))
	case err == nil:
		s.fail("%s: Check says %v, and the entry was removed at %v (cause %d); in front is %q", h.who, err, h.gone.At.Sub(s.begin), h.gone.Cause, front.Key)
	}
}

// removed finds out how the entry of h left.
func (o *oracle) removed(s *simulation, h *held) bool {
	for _, c := range s.srv.History(h.key) {
		// Of this entry: an earlier one at its key may have been removed before.
		if c.Deleted && c.Prev.CreateRevision == h.rev {
			h.gone = &c
			if c.Cause == etcdfake.ByForce {
				o.forced++
			}
			return true
		}
	}
	return false
}
