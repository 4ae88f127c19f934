package queue

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/leftovers"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/internal/watching"
)

// shared is what all queues of one session have in common.
type shared struct {
	host lease.Host
	facts

	sights     sights
	semaphores semaphores
	prefixes   prefixes

	lines Lines[*ticket]
	mu    sync.Mutex // protects what is told of tickets: see ticket

	commits requests.Committer
	streams watching.Streams

	remains
}

// remains is what removes what requests without replies leave.
type remains struct {
	keys    *leftovers.Keys
	sweeper *leftovers.Sweeper
	orphans *leftovers.Scanner
}

// semaphores is what permits of a session have in common.
type semaphores struct {
	puts chan struct{} // one for each put of a permit under way

	mu      sync.Mutex     // protects waiting
	waiting map[string]int // by Entries: how many turns of the session wait. While any does, it puts no permits
}

// prefixes is what a session knows of foreign prefixes.
type prefixes struct {
	warnedOfSlash atomic.Bool // not a sync.Once: the user's logger may make a queue

	mu        sync.Mutex      // protects unclaimed
	unclaimed map[string]bool // by Entries: those to whose claims this client has no right
}

// maxPermitPuts is how many puts of permits a session has under way. A thousand that are put at once read each other,
// and most do not fit.
const maxPermitPuts = 16

// facts are what stays the same of a session, so that it is made once.
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
			semaphores: semaphores{puts: make(chan struct{}, maxPermitPuts), waiting: make(map[string]int)},
		}
		s.keys, s.sweeper, s.orphans = leftovers.New(host, s.orphan)
		host.BeforeRevoke(func(_ context.Context, lease *lease.Lease) { s.keys.Forget(lease) })
		return s
	}).(*shared)
}

// wait counts n more turns of the session that wait, and returns how many do.
func (s *semaphores) wait(at layout.Queue, n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n += s.waiting[at.Entries]; n == 0 {
		delete(s.waiting, at.Entries)
	} else {
		s.waiting[at.Entries] = n
	}
	return n
}

// enter waits until few puts of permits are under way.
func (s *semaphores) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s.puts <- struct{}{}:
		return func() { <-s.puts }, nil
	case <-ctx.Done():
		return nil, retry.ContextErr(ctx)
	}
}

// warnOfSlash tells the session's logger of a prefix that ends in "/", unless the session's options say that it is
// meant. Once for each session, because a program may make a queue for each request.
func (s *shared) warnOfSlash(at layout.Queue) {
	if s.host.TrailingSlash() || s.prefixes.warnedOfSlash.Swap(true) {
		return
	}
	s.host.Logger().Warn(`a prefix ends in "/": contenders that name it without the slash do not exclude this one; `+
		"remove the slash, or, if all contenders have it, set session.Options.TrailingSlash",
		"kind", at.Kind, "name", at.Name, "entries", at.Entries)
}

// isUnclaimed reports whether this client has no right to the claims of a prefix.
func (s *shared) isUnclaimed(at layout.Queue) bool {
	s.prefixes.mu.Lock()
	defer s.prefixes.mu.Unlock()
	return s.prefixes.unclaimed[at.Entries]
}

// noteUnclaimed records that this client has no right to the claims of a prefix, and tells the session's logger once.
func (s *shared) noteUnclaimed(at layout.Queue) {
	p := &s.prefixes
	p.mu.Lock()
	known := p.unclaimed[at.Entries]
	if p.unclaimed == nil {
		p.unclaimed = make(map[string]bool)
	}
	p.unclaimed[at.Entries] = true
	p.mu.Unlock()
	if !known {
		s.host.Logger().Warn("holdfast: no right to the claims of a prefix; entries are put without them, so one that comes "+
			"after this session's lease was revoked may hold before this session is told; grant the role what "+
			"\"holdfast check --at\" names", "kind", at.Kind, "name", at.Name, "claims", at.Claims)
	}
}

// taken reports whether MinHold keeps the oldest entry of a queue.
func (s *shared) taken(oldest *mvccpb.KeyValue) bool {
	if v, _ := layout.DecodeValue(oldest.Value); !v.Released.IsZero() {
		return true
	}
	e, ok := s.keys.At(string(oldest.Key)).(suspect)
	return ok && e.takenFor() > 0 // it is not moved yet
}
