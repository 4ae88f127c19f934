package etcdfake

import (
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// This file has what happens to the whole cluster, as opposed to one connection.

// Put puts a key without a lease, as another client would.
func (s *Server) Put(key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.begin(ByForce)
	w.put([]byte(key), []byte(value), 0)
	s.commit(w)
}

// Delete deletes a key, and reports whether it existed.
func (s *Server) Delete(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.begin(ByForce)
	n := w.remove(span{key: []byte(key)})
	s.commit(w)
	return n > 0
}

// Revoke revokes a lease, which deletes its keys, and reports whether it existed.
func (s *Server) Revoke(lease clientv3.LeaseID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[int64(lease)]
	if l == nil {
		return false
	}
	s.end(l, ByForce)
	return true
}

// Compact compacts the store at the current revision.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = s.rev
}

// ChangeLeader elects a new leader, which gives every lease its full TTL again. For the time deposed, the old leader
// still acknowledges renewals, at its old term and without effect; all other requests reach the new leader.
func (s *Server) ChangeLeader(deposed time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.term++
	s.leaderless = false
	s.deposed = time.Now().Add(deposed)
	for _, l := range s.leases {
		s.refresh(l)
	}
}

// LoseLeader leaves the cluster without a leader until ChangeLeader: writes, renewals and linearizable reads time out,
// leases do not expire, and watches that require a leader are canceled after three election timeouts.
func (s *Server) LoseLeader() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaderless = true
	for _, l := range s.leases {
		l.timer.Stop()
	}
	term := s.term
	time.AfterFunc(3*electionTimeout, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.leaderless && s.term == term {
			s.cancelWatches(rpctypes.ErrNoLeader, func(w *watch) bool { return w.needsLeader })
		}
	})
}

// CancelWatches cancels all watches with a reason, such as rpctypes.ErrNoLeader.
func (s *Server) CancelWatches(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancelWatches(reason, func(*watch) bool { return true })
}

// Skip advances the server's time by d at once: each lease is closer to its expiry by d, or expires. Advance the clocks
// of sessions by d just before to simulate a pause of their processes.
func (s *Server) Skip(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.byExpiry() {
		l.expires = l.expires.Add(-d)
		s.watchExpiry(l)
	}
}
