package queue

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/leftovers"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/watching"
)

// shared is what all queues of one session have in common.
type shared struct {
	host lease.Host
	facts

	lines  lines
	delays delays

	warnedOfSlash atomic.Bool // not a sync.Once: the user's logger may make a queue
	unclaimed     sync.Map    // by Entries: the foreign prefixes to whose claims this client has no right

	permitPuts chan struct{} // one for each put of a permit under way
	commits    requests.Committer
	streams    watching.Streams

	keys    *leftovers.Keys
	sweeper *leftovers.Sweeper
	orphans *leftovers.Scanner
}

// maxPermitPuts is how many puts of permits a session has under way. A thousand puts at once read each other, and most
// do not fit.
const maxPermitPuts = 16

// facts stay the same in a session, so they are computed once.
type facts struct {
	lockDelay  time.Duration
	toldWithin time.Duration // see lease.ToldWithin
	lookLasts  time.Duration // see lease.LookLasts
	identity   layout.Identity
	getEpoch   clientv3.Op // reads the fencing epoch
	claimValue string      // of all claims of the session
}

type sharedKey struct{}

func sharedBy(host lease.Host) *shared {
	return host.Extension(sharedKey{}, func() any {
		delay := host.LockDelay()
		s := &shared{
			host: host,
			facts: facts{
				lockDelay: delay, toldWithin: lease.ToldWithin(delay), lookLasts: lease.LookLasts(delay),
				identity: host.Identity(), getEpoch: clientv3.OpGet(host.EpochKey()),
				claimValue: layout.Claim{LockDelay: delay, ToldWithin: lease.ToldWithin(delay)}.Encode(),
			},
			commits:    requests.Committer{Sender: host.Sender(), Go: host.Go},
			permitPuts: make(chan struct{}, maxPermitPuts),
		}
		s.keys, s.sweeper, s.orphans = leftovers.New(host, s.orphan)
		host.BeforeRevoke(func(_ context.Context, lease *lease.Lease) { s.keys.Forget(lease) })
		return s
	}).(*shared)
}

// warnOfSlash tells the session's logger of a prefix that ends in "/", unless the session's options say it's meant.
// Once for each session, because a program may make a queue for each request.
func (s *shared) warnOfSlash(at layout.Queue) {
	if s.host.TrailingSlash() || s.warnedOfSlash.Swap(true) {
		return
	}
	s.host.Logger().Warn(`a prefix ends in "/": contenders that name it without the slash do not exclude this one; `+
		"remove the slash, or, if all contenders have it, set session.Options.TrailingSlash",
		"kind", at.Kind, "name", at.Name, "entries", at.Entries)
}

// isUnclaimed reports whether this client has no right to the claims of a prefix.
func (s *shared) isUnclaimed(at layout.Queue) bool {
	_, known := s.unclaimed.Load(at.Entries)
	return known
}

// noteUnclaimed records a prefix to whose claims this client has no right, and tells the session's logger once.
func (s *shared) noteUnclaimed(at layout.Queue) {
	if _, known := s.unclaimed.LoadOrStore(at.Entries, true); !known {
		s.host.Logger().Warn("holdfast: no right to the claims of a prefix; entries are put without them, so one that comes "+
			"after this session's lease was revoked may hold before this session is told; grant the role what "+
			"\"holdfast check --at\" names", "kind", at.Kind, "name", at.Name, "claims", at.Claims)
	}
}

// orphan returns an entry without an attempt, as the scanner has found it. It has no id: copies of it may still arrive,
// so the key isn't used again.
func (s *shared) orphan(at layout.Queue, key string, lease *lease.Lease) *leftovers.Suspect {
	q := &Queue{host: s.host, shared: s, scope: scope{At: at, Reader: layout.IsReader(key)}}
	if s.isUnclaimed(at) {
		q = q.withoutClaims()
	}
	keys := entryKeys{Key: key, home: key}
	return (&entry{Queue: q, of: &attempt{lease: lease}, Lease: lease, entryKeys: keys, stage: ended}).suspect()
}
