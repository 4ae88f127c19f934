package leftovers

import (
	"context"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

const (
	// ScanEvery is the time between two scans.
	ScanEvery = 30 * time.Second

	// ScanAgainAfter is the time between the two lists of a scan: longer than any request of an attempt.
	ScanAgainAfter = 5 * time.Second
)

// Scanner finds entries on the session's lease without an attempt.
type Scanner struct {
	host    lease.Host
	keys    *Keys
	sweeper *Sweeper
	orphan  func(at layout.Queue, key string, l *lease.Lease) *Suspect
	start   sync.Once // of run

	mu      sync.Mutex              // protects foreign
	foreign map[string]layout.Queue // those of foreign prefixes used by this session, by Entries
}

// Used records a queue as used by the session. The first use starts the scanner.
func (s *Scanner) Used(at layout.Queue) {
	if at.Foreign {
		s.mu.Lock()
		s.foreign[at.Entries] = at
		s.mu.Unlock()
	}
	s.start.Do(func() { s.host.Go(s.run) }) // joined by Close
}

func (s *Scanner) run(ctx context.Context) {
	for lease.Sleep(ctx, lease.Jittered(ScanEvery)) {
		s.scan(ctx)
	}
}

// scan hands an entry to the sweeper if two lists show it, and no attempt has it in between. Between the lists its key
// is claimed: keys are used again, and a new entry at this key would be mistaken for the orphan.
func (s *Scanner) scan(ctx context.Context) {
	// etcd's client repeats a write if a proxy or a member answers that its time is over. If the first copy is carried
	// out after the entry of the second was released, it passes the gate, and nothing else would remove its entry:
	//
	//	rev 10  the second copy puts the entry
	//	rev 12  the entry is released
	//	rev 15  the first copy puts it again. No caller waits for this reply, and the session renews its lease
	l := s.host.Lease()
	var orphans []*Suspect
	for key, at := range s.list(ctx, l) {
		if e := s.orphan(at, key, l); s.keys.Register(key, l, e) {
			orphans = append(orphans, e)
		}
	}
	if len(orphans) == 0 || !lease.Sleep(ctx, lease.Jittered(ScanAgainAfter)) {
		return
	}
	still := s.list(ctx, l)
	for _, e := range orphans {
		if _, stands := still[e.Key]; !stands {
			s.keys.Unregister(e.Key)
			continue
		}
		e.Log.Warn("holdfast: removing an orphaned entry, which etcd's client put by repeating a request")
		s.sweeper.Add(e)
	}
}

// list returns the keys on the lease with the form of an entry of this session, and their queues. Any other key there
// is the user's.
func (s *Scanner) list(ctx context.Context, l *lease.Lease) map[string]layout.Queue {
	ctx, cancel := context.WithTimeout(ctx, ScanAgainAfter)
	defer cancel()
	defer context.AfterFunc(l.Context(), cancel)()
	client := s.host.Client()
	send := func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
		return client.TimeToLive(ctx, l.ID(), clientv3.WithAttachedKeys())
	}
	resp, _, err := requests.Once(ctx, s.host.Sender(), requests.Unhurried, send)
	if err != nil {
		err = retry.WithConnection(client.ActiveConnection(), err)
		s.host.Logger().Debug("holdfast: could not list the keys of the lease", "error", err)
		return nil
	}
	entries := make(map[string]layout.Queue)
	for _, key := range resp.Keys {
		if at, found := s.queueOf(string(key), l); found {
			entries[at.PermitOf(string(key))] = at
		}
	}
	return entries
}

// queueOf returns the queue of an entry. It reports false unless the key has the form of an entry on this lease.
func (s *Scanner) queueOf(key string, l *lease.Lease) (at layout.Queue, found bool) {
	prefix := key[:strings.LastIndexByte(key, '/')+1]
	s.mu.Lock()
	at, found = s.foreign[prefix]
	s.mu.Unlock()
	if !found {
		at, found = layout.Of(s.host.Namespace(), key)
	}
	return at, found && at.IsOn(l.ID(), key)
}
