//go:build linux

package robustness

import (
	"context"
	"flag"
	"fmt"
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

// The campaign at full length, half an hour and more on an idle machine:
//
//	go test ./tests/robustness -run TestSickMinority -sick.for 5m -sick.sessions 15 -timeout 3h -v
var (
	sickFor      = flag.Duration("sick.for", 6*time.Second, "how long members are sick in TestSickMinority")
	sickTrace    = flag.Duration("sick.trace", time.Hour, "log the requests of a Lock and its Unlock that take longer")
	sickSessions = flag.Int("sick.sessions", 4, "busy sessions of each TTL in TestSickMinority, and as many idle ones")
)

// A sickCluster is a cluster with members that can be made sick, and sessions that
// reach each member by a way of their own.
type sickCluster struct {
	cluster  *etcdtest.Cluster
	links    []*etcdtest.Link // to each member
	password string
}

func admit(t *testing.T, members int, password string, opts etcdtest.Options) *sickCluster {
	t.Helper()
	p := &sickCluster{cluster: etcdtest.StartCluster(t, members, opts), password: password}
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

// client returns a client as users are told to make it.
func (p *sickCluster) client(t *testing.T, opts ...grpc.DialOption) *clientv3.Client {
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

// followers returns as many followers as may be missing, by their numbers.
func (p *sickCluster) followers(t *testing.T) (all []int) {
	t.Helper()
	cli := p.client(t) // with a password: Cluster.Leader has none
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

func (p *sickCluster) heal() {
	p.cluster.Heal()
	for i, m := range p.cluster.Members() {
		p.links[i].Heal()
		_ = m.Resume() // one that was not stopped does not mind
	}
}

// strikes make members sick, in ways in which clients do not notice it at once.
var strikes = map[string]func(t *testing.T, p *sickCluster, members []int){
	"stopped": func(t *testing.T, p *sickCluster, members []int) {
		for _, i := range members {
			if err := p.cluster.Member(i).Pause(); err != nil {
				t.Fatal(err)
			}
		}
	},
	"cut off from its peers": func(_ *testing.T, p *sickCluster, members []int) {
		var apart []*etcdtest.Server
		for _, i := range members {
			apart = append(apart, p.cluster.Member(i))
		}
		p.cluster.Partition(apart...)
	},
	"its clients' bytes held": func(_ *testing.T, p *sickCluster, members []int) {
		for _, i := range members {
			p.links[i].BlackHole()
		}
	},
}

func TestSickMinorityCostsNoSessionAndSuspendsNone(t *testing.T) {
	run := func(strike string, members int, password string) {
		t.Run(fmt.Sprintf("%s, of %d, password %v", strike, members, password != ""), func(t *testing.T) {
			p := admit(t, members, password, etcdtest.Options{Processes: true})
			w := p.open(t)
			for range *sickSessions {
				for _, ttl := range sickTTLs {
					w.add(t, ttl, time.Second)
					w.add(t, ttl, 0)
				}
			}
			w.addPuts(t, *sickSessions, time.Second)
			w.settle(t)
			strikes[strike](t, p, p.followers(t))
			t.Cleanup(p.heal) // before the sessions are closed, which is no part of this
			if o := w.look(t, *sickFor); o.lost > 0 || o.suspended > 0 {
				t.Errorf("%d sessions lost and %d suspended while a quorum was well", o.lost, o.suspended)
			}
		})
	}
	if !*longRuns && *sickFor < time.Minute {
		run("stopped", 3, "secret")
		run("its clients' bytes held", 5, "")
		if *full {
			run("cut off from its peers", 3, "")
		}
		return
	}
	for strike := range strikes {
		run(strike, 3, "")
		run(strike, 3, "secret")
		run(strike, 5, "")
	}
}

// sickTTLs are those of the sessions in TestSickMinority.
var sickTTLs = []time.Duration{15 * time.Second, 5 * time.Second}

// ward is the sessions of one sickCluster.
type ward struct {
	p       *sickCluster
	ctx     context.Context
	cancel  context.CancelFunc
	all     []*bedside
	running sync.WaitGroup
	puts    []*slowest
}

// bedside is what is seen of one session.
type bedside struct {
	sess            *session.Session
	ttl             time.Duration
	lost, suspended atomic.Int64
	unconfirmed     time.Duration // the longest
	lock, unlock    slowest
	trace           rpcTrace
	pause           time.Duration // between two locks; 0: idle
}

func (p *sickCluster) open(t *testing.T) *ward {
	ctx, cancel := context.WithCancel(context.Background())
	w := &ward{p: p, ctx: ctx, cancel: cancel}
	t.Cleanup(w.end)
	return w
}

// settle waits until each client has had answers from all members.
func (w *ward) settle(t *testing.T) {
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

func (w *ward) end() {
	w.cancel()
	w.running.Wait()
}

// add opens a session. It takes and releases a lock with the given pause, or, if
// that is 0, holds one.
func (w *ward) add(t *testing.T, ttl, pause time.Duration) {
	t.Helper()
	b := &bedside{ttl: ttl, pause: pause}
	cli := w.p.client(t, append(b.trace.options(), w.p.links[0].DialOptions()...)...) // which count
	b.sess = open(t, cli, session.Options{TTL: ttl, OnStateChange: func(ev session.Event) {
		switch {
		case w.ctx.Err() != nil: // the end of the test
		case ev.State == holdfast.Lost:
			b.lost.Add(1)
			t.Logf("%v: %v; its requests until then:%s", ttl, ev.Err, b.trace.since(time.Now().Add(-ttl)))
		case ev.State == holdfast.Suspended:
			b.suspended.Add(1)
		}
	}})
	mu := locker.NewMutex(b.sess, fmt.Sprint("patient-", len(w.all)))
	if pause > 0 {
		w.running.Go(func() { b.work(w.ctx, mu, t.Logf) })
	} else if _, err := mu.Lock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	w.all = append(w.all, b)
}

// addPuts has n programs put keys without this module, for comparison.
func (w *ward) addPuts(t *testing.T, n int, pause time.Duration) {
	t.Helper()
	for i := range n {
		cli, took := w.p.client(t), new(slowest)
		w.puts = append(w.puts, took)
		w.running.Go(func() { barePuts(w.ctx, cli, fmt.Sprint("bare-", i), pause, took) })
	}
}

// work takes and releases a lock until ctx ends.
func (b *bedside) work(ctx context.Context, mu *locker.Mutex, logf func(string, ...any)) {
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

// outcome is what became of the sessions.
type outcome struct {
	lost, suspended int64
	rates           map[string]float64 // requests per session and second, by method
}

// look watches the sessions for a while, ends what runs on them, and logs what it
// has seen.
func (w *ward) look(t *testing.T, d time.Duration) outcome {
	t.Helper()
	o := outcome{rates: make(map[string]float64)}
	before, began := w.p.links[0].Count(), time.Now()
	end := time.NewTimer(d)
	defer end.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for over := false; !over; {
		select {
		case <-tick.C:
			for _, b := range w.all {
				b.unconfirmed = max(b.unconfirmed, b.sess.Unconfirmed())
			}
		case <-end.C:
			over = true
		}
	}
	sent, took := w.p.links[0].Count().Since(before), time.Since(began)
	w.end()
	var report strings.Builder
	for _, kind := range []string{"busy", "idle"} {
		for _, ttl := range sickTTLs {
			n, lost, suspended := 0, int64(0), int64(0)
			var unconfirmed time.Duration
			var lock, unlock slowest
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
			o.lost, o.suspended = o.lost+lost, o.suspended+suspended
		}
	}
	var puts slowest
	for _, p := range w.puts {
		puts.merge(p)
	}
	fmt.Fprintf(&report, "\nlongest bare Put %v", &puts)
	for method, n := range sent {
		o.rates[method] = float64(n) / float64(len(w.all)) / took.Seconds()
		fmt.Fprintf(&report, "\n%s: %.2f per session and second", method, o.rates[method])
	}
	t.Logf("%v:%s", took.Round(time.Second), report.String())
	return o
}

// Figures, which nothing is asserted of: how long Lock and Unlock take at most when
// etcd's leader is killed or stopped, each beside as many Puts that a program
// repeats by itself each half second.
func TestLocksAroundTheEndOfALeader(t *testing.T) {
	for i := range long(8, 0, 0) {
		name, strike := "leader killed", func(m *etcdtest.Server) error { m.Stop(); return nil }
		if i%2 == 1 {
			name, strike = "leader stopped", (*etcdtest.Server).Pause
		}
		opts := etcdtest.Options{Processes: true, DefaultTicks: i%4 > 1}
		t.Run(fmt.Sprintf("%s, default ticks %v", name, opts.DefaultTicks), func(t *testing.T) {
			p := admit(t, 3, "", opts)
			leader, _ := leaderAndOthers(t, p.cluster)
			w := p.open(t)
			for range *sickSessions {
				w.add(t, 15*time.Second, 20*time.Millisecond)
			}
			w.addPuts(t, *sickSessions, 20*time.Millisecond)
			w.settle(t)
			if err := strike(leader); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.heal)
			w.look(t, *sickFor)
		})
	}
}

// barePuts puts a key again and again, as a program does without this module.
func barePuts(ctx context.Context, cli *clientv3.Client, key string, pause time.Duration, took *slowest) {
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

// slowest notes how often something was done and how long that took at most.
type slowest struct {
	times   atomic.Int64
	longest atomic.Int64
}

func (s *slowest) add(d time.Duration) {
	s.times.Add(1)
	for {
		was := s.longest.Load()
		if int64(d) <= was || s.longest.CompareAndSwap(was, int64(d)) {
			return
		}
	}
}

func (s *slowest) merge(other *slowest) {
	s.times.Add(other.times.Load())
	s.longest.Store(max(s.longest.Load(), other.longest.Load()))
}

func (s *slowest) String() string {
	return fmt.Sprintf("%v of %d", time.Duration(s.longest.Load()).Round(time.Millisecond), s.times.Load())
}
