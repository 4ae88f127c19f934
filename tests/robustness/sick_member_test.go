//go:build linux

package robustness

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
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
)

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
			p := startFaultyCluster(t, members, password, etcdtest.Options{Processes: true, DefaultTicks: true})
			w := p.newWorkload(t)
			for range *sickSessions {
				for _, ttl := range sickTTLs {
					w.add(t, ttl, time.Second)
					w.add(t, ttl, 0)
				}
			}
			w.addPuts(t, *sickSessions, time.Second)
			w.settle(t)
			faults[fault](t, p, p.followers(t))
			t.Cleanup(p.heal) // before the sessions are closed
			if o := w.observe(t, *sickFor); o.lost > 0 || o.suspended > 0 {
				t.Errorf("%d sessions lost and %d suspended while a quorum was healthy", o.lost, o.suspended)
			}
		})
	}
	if !*longRuns && *sickFor < time.Minute {
		run("paused", 3, "secret")
		run("black-holed for clients", 5, "")
		if *full {
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

// sickTTLs are the TTLs of the sessions in TestSickMinorityLosesAndSuspendsNoSession.
var sickTTLs = []time.Duration{15 * time.Second, 5 * time.Second}

// workload runs sessions and bare clients on a faultyCluster.
type workload struct {
	p       *faultyCluster
	ctx     context.Context
	cancel  context.CancelFunc
	all     []*sessionStats
	running sync.WaitGroup
	puts    []*maxDuration
}

// sessionStats is one session and what the test observes of it.
type sessionStats struct {
	sess            *session.Session
	ttl             time.Duration
	lost, suspended atomic.Int64
	unconfirmed     time.Duration // maximum of Unconfirmed
	lock, unlock    maxDuration
	trace           rpcTrace
	pause           time.Duration // between two locks; 0 if the session is idle
}

func (p *faultyCluster) newWorkload(t *testing.T) *workload {
	ctx, cancel := context.WithCancel(context.Background())
	w := &workload{p: p, ctx: ctx, cancel: cancel}
	t.Cleanup(w.end)
	return w
}

// settle waits until each client has had three replies.
func (w *workload) settle(t *testing.T) {
	t.Helper()
	const answers = 3
	for _, p := range w.puts {
		await(t, "keys are put", func() bool { return p.times.Load() >= answers })
	}
	for _, b := range w.all {
		if b.pause > 0 {
			await(t, "locks are taken", func() bool { return b.unlock.times.Load() >= answers })
		}
	}
}

func (w *workload) end() {
	w.cancel()
	w.running.Wait()
}

// add opens a session. If pause is 0, it holds one lock; otherwise it acquires and
// releases a lock again and again, with that pause between.
func (w *workload) add(t *testing.T, ttl, pause time.Duration) {
	t.Helper()
	b := &sessionStats{ttl: ttl, pause: pause}
	cli := w.p.client(t, append(b.trace.options(), w.p.links[0].DialOptions()...)...) // the link counts its RPCs
	b.sess = open(t, cli, session.Options{TTL: ttl, OnStateChange: func(ev session.Event) {
		switch {
		case w.ctx.Err() != nil: // the test is ending
		case ev.State == holdfast.Lost:
			b.lost.Add(1)
			t.Logf("TTL %v: %v; its requests before that:%s", ttl, ev.Err, b.trace.since(time.Now().Add(-ttl)))
		case ev.State == holdfast.Suspended:
			b.suspended.Add(1)
		}
	}})
	mu := locker.NewMutex(b.sess, fmt.Sprint("lock-", len(w.all)))
	if pause > 0 {
		w.running.Go(func() { b.work(w.ctx, mu, t.Logf) })
	} else if _, err := mu.Lock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	w.all = append(w.all, b)
}

// addPuts starts n clients that put keys without this module, for comparison.
func (w *workload) addPuts(t *testing.T, n int, pause time.Duration) {
	t.Helper()
	for i := range n {
		cli, took := w.p.client(t), new(maxDuration)
		w.puts = append(w.puts, took)
		w.running.Go(func() { barePuts(w.ctx, cli, fmt.Sprint("bare-", i), pause, took) })
	}
}

// work acquires and releases a lock until ctx ends.
func (b *sessionStats) work(ctx context.Context, mu *locker.Mutex, logf func(string, ...any)) {
	tick := time.NewTicker(b.pause)
	defer tick.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		lk, err := mu.Lock(ctx)
		if err == nil {
			locked := time.Now()
			b.lock.add(locked.Sub(began))
			if err = lk.Unlock(ctx); err == nil {
				b.unlock.add(time.Since(locked))
			}
			if time.Since(began) > *sickTrace {
				logf("%v: Lock took %v, Unlock %v (%v):%s", b.ttl, locked.Sub(began), time.Since(locked), err, b.trace.since(began))
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// sickReport is the result of observing the sessions of a workload.
type sickReport struct {
	lost, suspended int64
	rates           map[string]float64 // requests per session and second by method
}

// observe samples the sessions for d, ends the workload, and logs and returns the
// result.
func (w *workload) observe(t *testing.T, d time.Duration) sickReport {
	t.Helper()
	o := sickReport{rates: make(map[string]float64)}
	before, began := w.p.links[0].Count(), time.Now()
	end := time.NewTimer(d)
	defer end.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for done := false; !done; {
		select {
		case <-tick.C:
			for _, b := range w.all {
				b.unconfirmed = max(b.unconfirmed, b.sess.Unconfirmed())
			}
		case <-end.C:
			done = true
		}
	}
	sent, took := w.p.links[0].Count().Since(before), time.Since(began)
	w.end()
	var report strings.Builder
	var ttls []time.Duration
	for _, b := range w.all {
		if !slices.Contains(ttls, b.ttl) {
			ttls = append(ttls, b.ttl)
		}
	}
	for _, kind := range []string{"busy", "idle"} {
		for _, ttl := range ttls {
			n, lost, suspended := 0, int64(0), int64(0)
			var unconfirmed time.Duration
			var lock, unlock maxDuration
			for _, b := range w.all {
				if b.ttl != ttl || (b.pause > 0) != (kind == "busy") {
					continue
				}
				n++
				lost, suspended = lost+b.lost.Load(), suspended+b.suspended.Load()
				unconfirmed = max(unconfirmed, b.unconfirmed)
				lock.merge(&b.lock)
				unlock.merge(&b.unlock)
			}
			if n == 0 {
				continue
			}
			fmt.Fprintf(&report, "\n%d %s sessions of %v: %d lost, %d suspensions, longest without a confirmation %v",
				n, kind, ttl, lost, suspended, unconfirmed)
			if kind == "busy" {
				fmt.Fprintf(&report, "; longest Lock %v, Unlock %v", &lock, &unlock)
			}
			o.lost += lost
			// A session of 5 s is suspended after 2.25 s without a confirmation. In a
			// short run the machine is busy with other tests and may take that long itself.
			if *longRuns || *sickFor >= time.Minute || ttl >= session.DefaultTTL {
				o.suspended += suspended
			}
		}
	}
	var puts maxDuration
	for _, p := range w.puts {
		puts.merge(p)
	}
	if len(w.puts) > 0 {
		fmt.Fprintf(&report, "\nlongest bare Put %v", &puts)
	}
	for method, n := range sent {
		o.rates[method] = float64(n) / float64(len(w.all)) / took.Seconds()
		fmt.Fprintf(&report, "\n%s: %.2f per session and second", method, o.rates[method])
	}
	t.Logf("%v:%s", took.Round(time.Second), report.String())
	return o
}

// Measures the longest Lock and Unlock while etcd's leader is killed or paused, and for comparison the longest Put of a
// client that repeats it every half second. The durations are only logged.
func TestLockLatencyAcrossALeaderFailure(t *testing.T) {
	for i := range long(8, 0, 0) {
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
			w.addPuts(t, *sickSessions, 20*time.Millisecond)
			w.settle(t)
			if err := fault(leader); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.heal)
			w.observe(t, *sickFor)
		})
	}
}

// barePuts puts a key again and again with etcd's client alone.
func barePuts(ctx context.Context, cli *clientv3.Client, key string, pause time.Duration, took *maxDuration) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		for ctx.Err() == nil {
			attempt, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
			_, err := cli.Put(attempt, key, "")
			cancel()
			if err == nil {
				took.add(time.Since(began))
				break
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// maxDuration is the number and the maximum of durations.
type maxDuration struct {
	times   atomic.Int64
	longest atomic.Int64
}

func (s *maxDuration) add(d time.Duration) {
	s.times.Add(1)
	for {
		was := s.longest.Load()
		if int64(d) <= was || s.longest.CompareAndSwap(was, int64(d)) {
			return
		}
	}
}

func (s *maxDuration) merge(other *maxDuration) {
	s.times.Add(other.times.Load())
	s.longest.Store(max(s.longest.Load(), other.longest.Load()))
}

func (s *maxDuration) String() string {
	return fmt.Sprintf("%v of %d", time.Duration(s.longest.Load()).Round(time.Millisecond), s.times.Load())
}
