package etcdfake

import (
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// What happens to the cluster, rather than to one connection.

// Put writes a key without a client, and without a lease.
func (s *Server) Put(key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.begin(ByForce)
	w.put([]byte(key), []byte(value), 0)
	s.commit(w)
}

// Delete deletes a key, as an administrator would, and reports whether it
// stood.
func (s *Server) Delete(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.begin(ByForce)
	n := w.remove(span{key: []byte(key)})
	s.commit(w)
	return n > 0
}

// Revoke ends a lease, as an administrator would, and reports whether it was
// alive.
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

// Compact drops the history up to the present: reads and watches from before
// are refused.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = s.rev
}

// ChangeLeader makes a new leader, at the next term: every lease has its full
// TTL again. Until lie has passed, the old leader goes on to answer renewals
// as if it still led: at the old term, and without effect. All other requests
// reach the new one.
func (s *Server) ChangeLeader(lie time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.term++
	s.leaderless = false
	s.lying = time.Now().Add(lie)
	for _, l := range s.leases {
		s.refresh(l)
	}
}

// LoseLeader takes the leader away until ChangeLeader: writes, renewals and
// reads that are not serializable time out, leases do not expire, watches that
// require a leader are cancelled after three election timeouts.
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

// CancelWatches cancels all watches with a reason, such as
// rpctypes.ErrNoLeader.
func (s *Server) CancelWatches(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancelWatches(reason, func(*watch) bool { return true })
}

// Skip lets d pass for the server alone, in an instant: leases are closer to
// their expiry by d, or past it. With the clocks of all sessions advanced by d
// just before, that is a stop of all their processes for d: the time has
// passed, and no timer of theirs has fired yet.
func (s *Server) Skip(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.byExpiry() {
		l.expires = l.expires.Add(-d)
		s.watchExpiry(l)
	}
}
