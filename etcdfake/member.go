package etcdfake

import (
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A Member is one member of a Server. All of them have the same store; each may tell of a change later than the others.
// A client sends each request, and each new watch, to the next member, and a watch stays on its member.
//
// What happens to members does not change who leads, nor whether there is a quorum: see Server.LoseLeader. Its methods
// are safe for concurrent use, and none of them blocks.
type Member struct {
	srv    *Server
	number int

	// srv.mu protects the rest.
	applied int64 // the revision up to which it has applied what was committed
	lag     time.Duration
	lags    int // how often lag was set
	hangs   bool
	learns  bool
	held    []func() // messages that wait until Resume
	late    []late
}

// A late reply waits until its member has applied a revision.
type late struct {
	rev  int64
	send func()
}

// Members returns the members, in the order in which MemberList names them.
func (s *Server) Members() []*Member { return append([]*Member(nil), s.members...) }

// ID returns the member's ID, which the headers of its replies have.
func (m *Member) ID() uint64 { return memberID + uint64(m.number) }

// Lag makes the member apply each change d after it was committed, changes that it has not applied yet included. So its
// watches tell that late, and so late it replies to writes and linearizable reads. With 0 it has caught up.
func (m *Member) Lag(d time.Duration) {
	m.srv.mu.Lock()
	defer m.srv.mu.Unlock()
	m.lag = d
	m.lags++
	m.commit(nil)
}

// SetLearner makes the member one that does not vote, or one that does. MemberList says so, and nothing else changes.
func (m *Member) SetLearner(learner bool) {
	m.srv.mu.Lock()
	defer m.srv.mu.Unlock()
	m.learns = learner
}

// Hang stops the member until Resume, as a SIGSTOP would: no connection breaks, and requests and replies wait.
func (m *Member) Hang() {
	m.srv.mu.Lock()
	defer m.srv.mu.Unlock()
	m.hangs = true
}

// Resume ends Hang. What has waited arrives, in order.
func (m *Member) Resume() {
	m.srv.mu.Lock()
	defer m.srv.mu.Unlock()
	if !m.hangs {
		return
	}
	m.hangs = false
	held := m.held
	m.held = nil
	for _, f := range held {
		f()
	}
	m.commit(nil)
}

// Reset breaks the connections of all links to the member: its streams end, as do requests in flight. The watches of
// clientv3's Watcher move to the next member.
func (m *Member) Reset() {
	m.srv.mu.Lock()
	defer m.srv.mu.Unlock()
	for _, l := range m.srv.links {
		l.breaks(m)
		if l.isOpen() {
			l.resume()
		}
	}
}

// Watches returns how many watches are on the member.
func (m *Member) Watches() (n int) {
	m.srv.mu.Lock()
	defer m.srv.mu.Unlock()
	for _, w := range m.srv.watches {
		if w.conn.to == m {
			n++
		}
	}
	return n
}

// commit has the member apply what was committed, now or later. Changes are those of the last revision, if that is all.
func (m *Member) commit(changes []Change) {
	rev := m.srv.rev
	switch {
	case m.hangs || m.applied == rev:
	case m.lag <= 0:
		m.apply(rev, changes)
	default:
		lags := m.lags
		time.AfterFunc(m.lag, func() {
			m.srv.mu.Lock()
			defer m.srv.mu.Unlock()
			if m.lags == lags && !m.hangs {
				m.apply(rev, nil)
			}
		})
	}
}

// apply wakes the watches on the member, and sends the replies that have waited for this.
func (m *Member) apply(rev int64, changes []Change) {
	if rev <= m.applied {
		return
	}
	if m.applied < rev-1 || changes == nil {
		changes = m.srv.between(m.applied+1, rev)
	}
	m.applied = rev
	for _, watch := range m.srv.watches {
		if watch.conn.to == m {
			watch.wake(changes)
		}
	}
	waiting := m.late
	m.late = nil
	for _, l := range waiting {
		m.whenApplied(l.rev, l.send)
	}
}

// whenApplied runs f once the member has applied a revision.
func (m *Member) whenApplied(rev int64, f func()) {
	if m.applied < rev {
		m.late = append(m.late, late{rev, f})
		return
	}
	f()
}

func (s *Server) serveMembers(*pb.MemberListRequest) (*pb.MemberListResponse, error) {
	resp := &pb.MemberListResponse{Header: s.header(0)}
	resp.Header.Revision = 0
	for _, m := range s.members {
		name := fmt.Sprintf("etcdfake%d", m.number+1)
		resp.Members = append(resp.Members, &pb.Member{
			ID: m.ID(), Name: name, IsLearner: m.learns,
			PeerURLs: []string{"http://" + name + ":2380"}, ClientURLs: []string{"http://" + name + ":2379"},
		})
	}
	return resp, nil
}
