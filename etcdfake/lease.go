package etcdfake

import (
	"bytes"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// maxTTL is etcd's lease.MaxLeaseTTL, in seconds.
const maxTTL = 9_000_000_000

// lease is a lease; Server.mu protects it.
type lease struct {
	id      int64
	ttl     int64 // in seconds
	expires time.Time
	timer   *time.Timer
	keys    map[string]bool
}

func (s *Server) serveGrant(r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	id := r.ID
	if id == 0 {
		s.nextLease++
		id = s.nextLease
	}
	switch {
	case r.TTL > maxTTL:
		return nil, rpctypes.ErrGRPCLeaseTTLTooLarge
	case s.leases[id] != nil:
		return nil, rpctypes.ErrGRPCLeaseExist
	}
	l := &lease{id: id, ttl: max(r.TTL, s.minTTL), keys: make(map[string]bool)}
	l.timer = time.AfterFunc(time.Duration(maxTTL)*time.Second, func() { s.expire(l) })
	s.leases[id] = l
	s.refresh(l)
	return &pb.LeaseGrantResponse{Header: s.header(0), ID: id, TTL: l.ttl}, nil
}

// refresh starts the TTL of a lease again.
func (s *Server) refresh(l *lease) {
	l.expires = time.Now().Add(time.Duration(l.ttl) * time.Second)
	s.watchExpiry(l)
}

// watchExpiry sets the timer of a lease, or ends the lease if its time is over.
func (s *Server) watchExpiry(l *lease) {
	switch left := time.Until(l.expires); {
	case s.leaderless || s.closed:
		l.timer.Stop()
	case left > 0:
		l.timer.Reset(left)
	default:
		s.end(l, ByExpiry)
	}
}

func (s *Server) expire(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[l.id] == l && !s.leaderless && !time.Now().Before(l.expires) {
		s.end(l, ByExpiry)
	}
}

// end deletes a lease and its keys, all at one revision.
func (s *Server) end(l *lease, cause Cause) {
	l.timer.Stop()
	keys := sorted(l)
	w := s.begin(cause)
	for _, key := range keys {
		w.remove(span{key: key})
	}
	delete(s.leases, l.id)
	s.commit(w)
}

// attach moves a key from one lease to another; 0 is no lease.
func (s *Server) attach(key string, from, to int64) {
	if l := s.leases[from]; l != nil {
		delete(l.keys, key)
	}
	if l := s.leases[to]; l != nil {
		l.keys[key] = true
	}
}

func (s *Server) serveRevoke(r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	l := s.leases[r.ID]
	if l == nil {
		return nil, rpctypes.ErrGRPCLeaseNotFound
	}
	s.end(l, ByRevoke)
	return &pb.LeaseRevokeResponse{Header: s.header(0)}, nil
}

// serveRenewal answers one message of a LeaseKeepAlive stream. As in etcd, TTL 0 says that the lease does not exist.
func (s *Server) serveRenewal(r *pb.LeaseKeepAliveRequest) (*pb.LeaseKeepAliveResponse, error) {
	resp := &pb.LeaseKeepAliveResponse{Header: s.header(0), ID: r.ID}
	l := s.leases[r.ID]
	if l == nil {
		return resp, nil
	}
	resp.TTL = l.ttl
	if time.Now().Before(s.deposed) {
		resp.Header.RaftTerm--
		return resp, nil
	}
	s.refresh(l)
	return resp, nil
}

func (s *Server) serveTimeToLive(r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	resp := &pb.LeaseTimeToLiveResponse{Header: s.header(0), ID: r.ID, TTL: -1}
	l := s.leases[r.ID]
	if l == nil {
		return resp, nil
	}
	resp.TTL, resp.GrantedTTL = int64(time.Until(l.expires)/time.Second), l.ttl
	if r.Keys {
		resp.Keys = sorted(l)
	}
	return resp, nil
}

func (s *Server) serveLeases(*pb.LeaseLeasesRequest) (*pb.LeaseLeasesResponse, error) {
	resp := &pb.LeaseLeasesResponse{Header: s.header(0), Leases: []*pb.LeaseStatus{}}
	for _, l := range s.byExpiry() {
		resp.Leases = append(resp.Leases, &pb.LeaseStatus{ID: l.id})
	}
	return resp, nil
}

// byExpiry returns the leases, the first to expire first.
func (s *Server) byExpiry() []*lease {
	all := make([]*lease, 0, len(s.leases))
	for _, l := range s.leases {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b *lease) int {
		if c := a.expires.Compare(b.expires); c != 0 {
			return c
		}
		return int(a.id - b.id)
	})
	return all
}

// sorted returns the keys of a lease.
func sorted(l *lease) [][]byte {
	keys := make([][]byte, 0, len(l.keys))
	for key := range l.keys {
		keys = append(keys, []byte(key))
	}
	slices.SortFunc(keys, bytes.Compare)
	return keys
}

// Expires returns when a lease expires unless it is renewed; the zero time if it does not exist.
func (s *Server) Expires(lease clientv3.LeaseID) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.leases[int64(lease)]; l != nil {
		return l.expires
	}
	return time.Time{}
}
