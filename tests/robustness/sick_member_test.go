//go:build linux

package robustness

import (
	"flag"
	"fmt"
	"os/exec"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
)

// The full test takes half an hour or more on an idle machine:
//
//	go test ./tests/robustness -run TestSickMinorityLosesAndSuspendsNoSession -v -timeout 3h \
//	    -sick.for 5m -sick.sessions 15
var (
	sickFor   = flag.Duration("sick.for", 6*time.Second, "how long members are faulty in the tests of sick members")
	sickTrace = flag.Duration("sick.trace", time.Hour,
		"log the requests of each pair of Lock and Unlock that took longer")
	sickSessions = flag.Int("sick.sessions", 4, "number of busy sessions with each TTL, and of idle ones")
	sickLoops    = flag.Int("sick.loops", 0, "number of busy loops beside, each a process")
)

// busyLoops starts the loops of -sick.loops, which end with the test.
func busyLoops(t *testing.T) {
	t.Helper()
	for range *sickLoops {
		loop := exec.Command("sh", "-c", "while :; do :; done")
		mustSucceed(t, loop.Start())
		t.Cleanup(func() { _ = loop.Process.Kill(); _ = loop.Wait() })
	}
}

// A faultyCluster is a cluster with a link to each member, whose members can be made
// faulty.
type faultyCluster struct {
	cluster  *etcdtest.Cluster
	links    []*etcdtest.Link // to each member
	password string
}

func startFaultyCluster(t *testing.T, members int, password string, opts etcdtest.Options) *faultyCluster {
	t.Helper()
	p := &faultyCluster{cluster: etcdtest.StartCluster(t, members, opts), password: password}
	for _, m := range p.cluster.Members() {
		p.links = append(p.links, m.Link(t))
	}
	if password != "" {
		admin := p.cluster.Client(t)
		must(t)(admin.RoleAdd(deadline(t), "root"))
		must(t)(admin.UserAdd(deadline(t), "root", password))
		must(t)(admin.UserGrantRole(deadline(t), "root", "root"))
		must(t)(admin.AuthEnable(deadline(t)))
	}
	return p
}

// client returns a client with the documented settings and the endpoints of the links.
func (p *faultyCluster) client(t *testing.T, opts ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	var endpoints []string
	for _, l := range p.links {
		endpoints = append(endpoints, l.Endpoints()...)
	}
	cfg := session.ClientConfig(endpoints...)
	cfg.DialOptions = append(cfg.DialOptions, opts...)
	if p.password != "" {
		cfg.Username, cfg.Password = "root", p.password
	}
	cli, err := clientv3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// followers returns the indexes of as many followers as the cluster can lose.
func (p *faultyCluster) followers(t *testing.T) (all []int) {
	t.Helper()
	cli := p.client(t) // Cluster.Leader does not log in
	for i, m := range p.cluster.Members() {
		status, err := cli.Status(deadline(t), m.Endpoints()[0])
		if err != nil {
			t.Fatal(err)
		}
		if status.Leader != status.Header.MemberId && len(all) < len(p.links)/2 {
			all = append(all, i)
		}
	}
	return all
}

func (p *faultyCluster) heal() {
	p.cluster.Heal()
	for i, m := range p.cluster.Members() {
		p.links[i].Heal()
		_ = m.Resume() // has no effect on a member that is not paused
	}
}

// faults make members fail in ways that clients do not notice at once.
var faults = map[string]func(t *testing.T, p *faultyCluster, members []int){
	"paused": func(t *testing.T, p *faultyCluster, members []int) {
		for _, i := range members {
			if err := p.cluster.Member(i).Pause(); err != nil {
				t.Fatal(err)
			}
		}
	},
	"cut off from its peers": func(_ *testing.T, p *faultyCluster, members []int) {
		var minority []*etcdtest.Server
		for _, i := range members {
			minority = append(minority, p.cluster.Member(i))
		}
		p.cluster.Partition(minority...)
	},
	"black-holed for clients": func(_ *testing.T, p *faultyCluster, members []int) {
		for _, i := range members {
			p.links[i].BlackHole()
		}
	},
}

func TestSickMinorityLosesAndSuspendsNoSession(t *testing.T) {
	run := func(fault string, members int, password string) {
		t.Run(fmt.Sprintf("%s, of %d, password %v", fault, members, password != ""), func(t *testing.T) {
			measure(t, func(t *testing.T) finding { return observeSickMinority(t, fault, members, password) })
		})
	}
	if !rounds.Campaign() && *sickFor < time.Minute {
		run("paused", 3, "secret")
		if rounds.Full() {
			run("black-holed for clients", 5, "")
			run("cut off from its peers", 3, "")
		}
		return
	}
	for fault := range faults {
		run(fault, 3, "")
		run(fault, 3, "secret")
		run(fault, 5, "")
	}
}

func observeSickMinority(t *testing.T, fault string, members int, password string) (f finding) {
	p := startFaultyCluster(t, members, password, etcdtest.Options{Processes: true, DefaultTicks: true})
	w := p.newWorkload(t)
	for range *sickSessions {
		for _, ttl := range sickTTLs {
			w.add(t, ttl, time.Second)
			w.add(t, ttl, 0)
		}
	}
	w.addBare(t, *sickSessions, time.Second, barePut)
	w.settle(t)
	busyLoops(t)
	faults[fault](t, p, p.followers(t))
	t.Cleanup(p.heal) // before the sessions are closed
	o := w.observe(t, *sickFor)
	if o.lost+o.suspended > 0 {
		f.wrong = fmt.Sprintf("%d sessions lost and %d suspended while a quorum was healthy", o.lost, o.suspended)
	}
	if o.bare > 2*time.Second { // a quorum that is healthy answers one of four attempts
		f.slow = fmt.Sprintf("a bare client was not answered for %v", o.bare)
	}
	return f
}

// The leader of five members stops while a follower hangs. The others elect another one, for which they need a quarter
// of a TTL of 15 s at most: no session of that is lost. Those of 5 s have less than an election may take: how many are
// lost is logged.
func TestLeaderThatStopsBesideAHungMember(t *testing.T) {
	measure(t, observeLeaderThatStops)
}

func observeLeaderThatStops(t *testing.T) (f finding) {
	p := startFaultyCluster(t, 5, "", etcdtest.Options{Processes: true, DefaultTicks: true})
	w := p.newWorkload(t)
	for range rounds.Of(10, 1) * *sickSessions {
		for _, ttl := range sickTTLs {
			w.add(t, ttl, 0)
		}
	}
	w.addBare(t, *sickSessions, time.Second, barePut)
	w.settle(t)
	busyLoops(t)
	leader, _ := leaderAndOthers(t, p.cluster)
	mustSucceed(t, p.cluster.Member(p.followers(t)[0]).Pause())
	t.Cleanup(p.heal)
	<-time.After(2 * time.Second) // sessions find out that it hangs
	leader.Stop()
	o := w.observe(t, *sickFor)
	lost := make(map[time.Duration]int)
	for _, b := range w.all {
		if b.lost.Load() > 0 {
			lost[b.ttl]++
		}
	}
	t.Logf("sessions lost by TTL: %v", lost)
	if n := lost[15*time.Second]; n > 0 {
		f.wrong = fmt.Sprintf("%d sessions with a TTL of 15 s are lost", n)
	}
	if o.bare > 5*time.Second { // the election, and the client's pauses
		f.slow = fmt.Sprintf("a bare client was not answered for %v", o.bare)
	}
	return f
}

// Measures the longest Lock and Unlock while etcd's leader is killed or paused, and for comparison the longest Put of a
// client that repeats it every half second. The durations are only logged.
func TestLockLatencyAcrossALeaderFailure(t *testing.T) {
	for i := range rounds.Long(8, 0, 0) {
		name, fault := "leader killed", func(m *etcdtest.Server) error { m.Stop(); return nil }
		if i%2 == 1 {
			name, fault = "leader paused", (*etcdtest.Server).Pause
		}
		opts := etcdtest.Options{Processes: true, DefaultTicks: i%4 > 1}
		t.Run(fmt.Sprintf("%s, default ticks %v", name, opts.DefaultTicks), func(t *testing.T) {
			p := startFaultyCluster(t, 3, "", opts)
			leader, _ := leaderAndOthers(t, p.cluster)
			w := p.newWorkload(t)
			for range *sickSessions {
				w.add(t, 15*time.Second, 20*time.Millisecond)
			}
			w.addBare(t, *sickSessions, 20*time.Millisecond, barePut)
			w.settle(t)
			if err := fault(leader); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.heal)
			w.observe(t, *sickFor)
		})
	}
}
