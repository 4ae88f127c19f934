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

	// ScanSoonAfter is the time to the next scan after a put that may have left
	// copies unanswered.
	ScanSoonAfter = 5 * time.Second

	// ScanAgainAfter is the time after which a scan is repeated before an orphan is
	// removed: longer than any request of an attempt that may yet account for it.
	ScanAgainAfter = 5 * time.Second
)

// Scanner finds entries on the session's lease that no attempt accounts for.
//
// etcd's client repeats a write if a proxy or a member answers that its time is over. If the first copy is carried out
// after the entry of the second was released, it passes the gate, and nothing else would remove its entry.
type Scanner struct {
	host    lease.Host
	keys    *Keys
	sweeper *Sweeper
	orphan  func(at layout.Queue, key string, l *lease.Lease) Suspect
	wake    chan struct{} // buffered

	start sync.Once // of run

	mu      sync.Mutex              // protects foreign
	foreign map[string]layout.Queue // those of foreign prefixes that this session has used, by Entries
}

// Used records that the session uses a queue. The first use starts the scanner.
func (s *Scanner) Used(at layout.Queue) {
	if at.Foreign {
		s.mu.Lock()
		s.foreign[at.Entries] = at
		s.mu.Unlock()
	}
	s.start.Do(func() { s.host.Go(s.run) }) // joined by Close
}

// ScanSoon schedules the next scan for ScanSoonAfter from now.
func (s *Scanner) ScanSoon() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Scanner) run(ctx context.Context) {
	for {
		select {
		case <-time.After(lease.Jittered(ScanEvery)):
		case <-s.wake:
			if !lease.Sleep(ctx, lease.Jittered(ScanSoonAfter)) {
				return
			}
		case <-ctx.Done():
			return
		}
		s.scan(ctx)
	}
}

// scan hands to the sweeper the entries that two lists show and no attempt accounts
// for in between. Between the lists their keys are claimed: keys are used again, and
// an attempt that took one of them would be mistaken for the orphan.
func (s *Scanner) scan(ctx context.Context) {
	l := s.host.Lease()
	var orphans []Suspect
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
		if _, stands := still[e.Key()]; !stands {
			s.keys.Unregister(e.Key())
			continue
		}
		e.Log().Warn("holdfast: removing an orphaned entry, which etcd's client put by repeating a request")
		s.sweeper.Add(e)
	}
}

// list returns the keys on the lease that have the form of an entry of this
// session, and their queues. Any other key there is the user's.
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

// queueOf returns the queue that a key is an entry of. It reports false if the key does not have the form of an entry
// on that lease.
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
