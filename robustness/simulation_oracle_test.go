package robustness

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/session"
)

// noticeForced is how soon a holder must notice that its entry was removed by
// force: 2 s, and the time an RPC may take.
const noticeForced = 2*time.Second + simAttempt + simSlack

// oracle compares what holders believe with what the store says.
type oracle struct {
	over atomic.Bool

	mu      sync.Mutex // protects what follows; held during a look, so that looks do not overlap
	all     []*held
	highest map[string]fencing.Token
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

// held is one acquisition.
type held struct {
	who, prefix, key string
	client           *simClient
	lock             holding
	ended            error // what Check said when it first said that it had ended
	gone             *etcdfake.Change
}

// grant is told every acquisition as it returns.
func (o *oracle) grant(s *simulation, c *simClient, name, who string, lk holding) *held {
	h := &held{who: who, client: c, lock: lk, key: lk.Key(), prefix: lk.Key()[:strings.LastIndex(lk.Key(), "/")+1]}
	s.log(fmt.Sprintf("%s: granted, token %v, %s", who, lk.Token(), h.key))
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.highest == nil {
		o.highest = make(map[string]fencing.Token)
	}
	o.granted++
	o.look(s, h)
	if o.highest[name] >= lk.Token() && (h.gone == nil || h.gone.Cause != etcdfake.ByForce) {
		s.fail("%s: granted token %v after token %v", who, lk.Token(), o.highest[name])
	}
	o.highest[name] = max(o.highest[name], lk.Token())
	o.all = append(o.all, h)
	return h
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
}

// lookAtSession: a lease that was once lost stays so.
func (o *oracle) lookAtSession(s *simulation, c *simClient) {
	lease, err := c.sess.Lease(), c.sess.Check()
	switch {
	case lease != c.sess.Lease(): // it was just replaced
	case errors.Is(err, session.ErrLost):
		c.lost = lease
	case err != session.ErrClosed && lease == c.lost:
		s.fail("session %d: lease %x was lost, and now Check says %v", c.id, int64(lease), err)
	}
}

// look asks the store first and the holder afterwards. Nothing can join a
// queue ahead of an entry, so an entry that is not in front is gone; whoever is
// asked after that must know, whatever else happens at this very moment.
func (o *oracle) look(s *simulation, h *held) {
	var front string
	if h.ended == nil {
		if kvs := s.srv.Keys(h.prefix); len(kvs) > 0 {
			front = string(kvs[0].Key)
		}
	}
	err := h.lock.Check()
	if h.ended != nil {
		if err == nil || errors.Is(err, session.ErrSuspended) {
			s.fail("%s: was %v and now %v", h.who, h.ended, err)
		}
		return
	}
	if err != nil && !errors.Is(err, session.ErrSuspended) {
		h.ended = err
		s.log(fmt.Sprintf("%s: ended, %v", h.who, err))
		return
	}
	if front == h.key {
		return
	}
	if h.gone == nil && !o.removed(s, h) {
		s.fail("%s: Check says %v, and in front is %s", h.who, err, front)
		return
	}
	switch {
	case h.gone.Cause == etcdfake.ByForce:
		// While its connection did harm it could not notice.
		since := max(h.gone.At.Sub(s.begin), time.Duration(h.client.calm.Load()))
		if d := s.now() - since; d > noticeForced && err == nil {
			s.fail("%s: Check says %v, %v after the entry was removed by force", h.who, err, d)
		}
	case h.gone.Cause == etcdfake.ByExpiry && errors.Is(err, session.ErrSuspended):
		s.fail("%s: expired at %v, and is only told that it is suspended", h.who, h.gone.At.Sub(s.begin))
	case err == nil:
		s.fail("%s: Check says %v, and the entry was removed at %v (cause %d); in front is %q", h.who, err, h.gone.At.Sub(s.begin), h.gone.Cause, front)
	}
}

// removed finds out how the entry of h left.
func (o *oracle) removed(s *simulation, h *held) bool {
	for _, c := range s.srv.History(h.key) {
		if c.Deleted {
			h.gone = &c
			if c.Cause == etcdfake.ByForce {
				o.forced++
			}
			return true
		}
	}
	return false
}
