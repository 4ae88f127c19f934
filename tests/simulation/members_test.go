package simulation

import (
	"fmt"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/fakedial"
	"github.com/holdfast-go/holdfast/tests/internal/family"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// drawMembers draws how many members the cluster has. In half of the schedules there are several, and sessions watch
// their keys on a majority: then they poll seldom. What they rest on is that the others are well, so of the members a
// process can meet at most a minority is sick at a time. The rest of the schedule is as with one member.
func (s *simulation) drawMembers() int {
	r := s.source(7)
	s.quiet = s.restful || r.IntN(2) == 0
	switch {
	case !s.quiet:
		return 1
	case r.IntN(4) == 0:
		return 5
	}
	return 3
}

// client returns what a session is given. With oneEndpoint its sessions have one watch, and poll.
// What runs on the session has its watches from the Watcher that the second result sets, because those of etcd's client
// stop virtual time.
func (s *simulation) client(l *etcdfake.Link, oneEndpoint bool) (cli *clientv3.Client, started func()) {
	own := l.Client()
	if !s.quiet {
		return own, func() {}
	}
	members := s.srv.Members()
	if oneEndpoint {
		members = members[:1] // each request goes to any member all the same
	}
	cli = fakedial.Direct(l, members)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, cli)
	return cli, func() { cli.Watcher = own.Watcher }
}

// closeClients closes what client has returned, and with it the links.
func (s *simulation) closeClients() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cli := range s.clients {
		_ = cli.Close()
	}
}

// makeMembersSick makes a minority of the members sick now and then, until s.stop. Where surprises are, these do it:
// more would be no minority.
func (s *simulation) makeMembersSick() {
	r := s.source(8)
	for !s.stop.Load() && !s.profile.still && !s.family && !s.permits && !s.restful {
		time.Sleep(family.UpTo(r, 2*s.profile.every) + time.Millisecond)
		d := family.UpTo(r, []time.Duration{time.Second, 5 * time.Second, 20 * time.Second}[r.IntN(3)]) + time.Millisecond
		heal := s.makeSick(r, s.processes[r.IntN(len(s.processes))])
		time.Sleep(d)
		heal()
	}
}

// makeSick makes a minority of the members sick, until heal is called.
func (s *simulation) makeSick(r *rand.Rand, c *process) (heal func()) {
	members, from := s.srv.Members(), s.now()
	r.Shuffle(len(members), func(i, k int) { members[i], members[k] = members[k], members[i] })
	sick := members[:(len(members)-1)/2]
	s.sick.Store(int32(len(sick)))
	for _, m := range sick {
		switch n := r.IntN(5); n {
		case 0:
			s.log(fmt.Sprintf("member %x hangs", m.ID()))
			m.Hang()
		case 1:
			s.log(fmt.Sprintf("member %x lags", m.ID()))
			m.Lag(time.Hour)
		case 2:
			s.log(fmt.Sprintf("member %x lags a bit", m.ID()))
			m.Lag(family.UpTo(r, 2*time.Second))
		case 3:
			s.log(fmt.Sprintf("member %x is cut off from session %d", m.ID(), c.id))
			c.link.BlackHoleMember(m)
		case 4:
			s.log(fmt.Sprintf("member %x restarts", m.ID()))
			m.Reset()
		}
	}
	return func() {
		s.log("the members are well")
		s.sick.Store(0)
		for _, m := range sick {
			m.Resume()
			m.Lag(0)
			c.link.HealMember(m)
		}
		fault := oracle.Fault{From: from, To: s.now() + attempt}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.record.Sick, s.record.Unsteady = append(s.record.Sick, fault), append(s.record.Unsteady, fault)
	}
}
