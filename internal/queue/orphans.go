package queue

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/calls"
	"github.com/holdfast-go/holdfast/internal/judge"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/permits"
	"github.com/holdfast-go/holdfast/internal/reads"
	"github.com/holdfast-go/holdfast/internal/sending"
)

const (
	// scanEvery is the time between two scans.
	scanEvery = 30 * time.Second

	// scanSoonAfter is the time to the next scan after a put that may have left
	// copies unanswered.
	scanSoonAfter = 5 * time.Second

	// scanAgainAfter is the time after which a scan is repeated before an orphan is
	// removed: longer than any request of an attempt that may yet account for it.
	scanAgainAfter = 5 * time.Second
)

// orphanScanner finds entries on the session's lease that no attempt accounts for.
//
// etcd's client repeats a write if a proxy or a member answers that its time is over. If the first copy is carried out
// after the entry of the second was released, it passes the gate, and nothing else would remove its entry.
type orphanScanner struct {
	host lease.Host
	wake chan struct{} // buffered

	running atomic.Bool

	mu      sync.Mutex              // protects foreign
	foreign map[string]layout.Queue // those of foreign prefixes that this session has used, by Entries
}

// used records that the session uses q. The first use starts the scanner.
func (s *orphanScanner) used(q *Queue) {
	if q.At.Foreign {
		s.mu.Lock()
		s.foreign[q.At.Entries] = q.At
		s.mu.Unlock()
	}
	if !s.running.Load() && s.running.CompareAndSwap(false, true) {
		s.host.Go(s.run) // joined by Close
	}
}

// scanSoon schedules the next scan for scanSoonAfter from now.
func (s *orphanScanner) scanSoon() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *orphanScanner) run(ctx context.Context) {
	timer := time.NewTimer(calls.Jittered(scanEvery))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.wake:
			if !calls.Sleep(ctx, calls.Jittered(scanSoonAfter)) {
				return
			}
		case <-ctx.Done():
			return
		}
		s.scan(ctx)
		timer.Reset(calls.Jittered(scanEvery))
	}
}

// scan hands to the sweeper the entries that two lists show and no attempt accounts
// for in between. Between the lists their keys are claimed: keys are used again, and
// an attempt that took one of them would be mistaken for the orphan.
func (s *orphanScanner) scan(ctx context.Context) {
	lease := s.host.Lease()
	var orphans []*entry
	for key, q := range s.list(ctx, lease) {
		// No id: copies of it may still arrive, so the key is not used again.
		if e := (&entry{q: q, of: &attempt{lease: lease}, stage: ended}); q.shared.keys.register(e, key) {
			orphans = append(orphans, e)
		}
	}
	if len(orphans) == 0 || !calls.Sleep(ctx, calls.Jittered(scanAgainAfter)) {
		return
	}
	still := s.list(ctx, lease)
	for _, e := range orphans {
		if still[e.key] == nil {
			e.q.shared.keys.unregister(e)
			continue
		}
		e.log().Warn("holdfast: removing an orphaned entry, which etcd's client put by repeating a request")
		e.q.shared.sweeper.add(e)
	}
}

// list returns the keys on the lease that have the form of an entry of this
// session, and their queues. Any other key there is the user's.
func (s *orphanScanner) list(ctx context.Context, lease *lease.Lease) map[string]*Queue {
	ctx, cancel := context.WithTimeout(ctx, scanAgainAfter)
	defer cancel()
	defer context.AfterFunc(lease.Context(), cancel)()
	client := s.host.Client()
	send := func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
		return client.TimeToLive(ctx, lease.ID(), clientv3.WithAttachedKeys())
	}
	resp, _, err := sending.Once(ctx, s.host.Sender(), sending.Read, send)
	if err != nil {
		err = judge.WithConnection(client.ActiveConnection(), err)
		s.host.Logger().Debug("holdfast: could not list the keys of the lease", "error", err)
		return nil
	}
	shared := sharedBy(s.host)
	entries := make(map[string]*Queue)
	for _, key := range resp.Keys {
		if q := s.queueOf(string(key), lease); q != nil {
			q.shared = shared
			entries[string(key)] = q
		}
	}
	return entries
}

// queueOf returns the queue that a key is an entry of, or nil if the key does not
// have the form of an entry on that lease.
func (s *orphanScanner) queueOf(key string, lease *lease.Lease) *Queue {
	prefix := key[:strings.LastIndexByte(key, '/')+1]
	s.mu.Lock()
	at, found := s.foreign[prefix]
	s.mu.Unlock()
	if !found {
		at, found = layout.Of(s.host.Namespace(), key)
	}
	if !found || !at.IsOn(lease.ID(), key) {
		return nil
	}
	q := &Queue{host: s.host, Scope: reads.Scope{At: at, Reader: layout.IsReader(key)}, weight: layout.WeightOf(key)}
	if at.Kind == holdfast.KindSemaphore {
		q.limit = permits.New(s.host, at, 0) // which nothing reads
	}
	return q
}
