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
	sickSessions = flag.Int("sick.sessions", 4, "busy sessions of each TTL in TestSickMinority, and as many idle ones")
)

// A sickCluster is a cluster with members that can be made sick, and sessions that
// reach each member by a way of their own.
type sickCluster struct {
	cluster  *etcdtest.Cluster
	links    []*etcdtest.Link // to each member
	password string
}

func admit(t *testing.T, members int, password string) *sickCluster {
	t.Helper()
	p := &sickCluster{cluster: etcdtest.StartCluster(t, members, etcdtest.Options{Processes: true}), password: password}
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
func (p *sickCluster) client(t *testing.T) *clientv3.Client {
	t.Helper()
	var endpoints []string
	for _, l := range p.links {
		endpoints = append(endpoints, l.Endpoints()...)
	}
	cfg := session.ClientConfig(endpoints...)
	cfg.DialOptions = append(cfg.DialOptions, p.links[0].DialOptions()...) // they count
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
			p := admit(t, members, password)
			w := p.watch(t, 15*time.Second, 5*time.Second)
			strikes[strike](t, p, p.followers(t))
			t.Cleanup(p.heal) // before the sessions are closed, which is no part of this
			if bad := w.look(t); bad > 0 {
				t.Errorf("%d sessions lost or suspended while a quorum was well", bad)
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

// ward is the sessions of one sickCluster.
type ward struct {
	p       *sickCluster
	ctx     context.Context
	all     []*bedside
	running sync.WaitGroup
}

// bedside is what is seen of one session.
type bedside struct {
	sess            *session.Session
	ttl             time.Duration
	lost, suspended atomic.Int64
	unconfirmed     time.Duration // the longest
	held            atomic.Int64  // the longest that Lock and Unlock took together
	pause           time.Duration // between two locks; 0: idle
}

// watch opens sessions of each TTL, half of them busy and half of them idle.
func (p *sickCluster) watch(t *testing.T, ttls ...time.Duration) *ward {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &ward{p: p, ctx: ctx}
	t.Cleanup(func() {
		cancel()
		w.running.Wait()
	})
	for _, ttl := range ttls {
		for i := range 2 * *sickSessions {
			b := &bedside{ttl: ttl}
			cli := p.client(t)
			b.sess = open(t, cli, session.Options{TTL: ttl, OnStateChange: func(ev session.Event) {
				switch {
				case ctx.Err() != nil: // the end of the test
				case ev.State == holdfast.Lost:
					b.lost.Add(1)
				case ev.State == holdfast.Suspended:
					b.suspended.Add(1)
				}
			}})
			mu := locker.NewMutex(b.sess, fmt.Sprintf("%v-%d", ttl, i))
			if i%2 == 0 {
				b.pause = time.Second
				w.running.Go(func() { b.work(ctx, mu) })
			} else if _, err := mu.Lock(deadline(t)); err != nil {
				t.Fatal(err)
			}
			w.all = append(w.all, b)
		}
	}
	return w
}

// work takes and releases a lock until ctx ends.
func (b *bedside) work(ctx context.Context, mu *locker.Mutex) {
	tick := time.NewTicker(b.pause)
	defer tick.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		lk, err := mu.Lock(ctx)
		if err == nil {
			err = lk.Unlock(ctx)
		}
		if err == nil {
			b.held.Store(max(b.held.Load(), int64(time.Since(began))))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// look watches the sessions for as long as the members are sick, and returns how
// often one was lost or suspended.
func (w *ward) look(t *testing.T) (bad int64) {
	t.Helper()
	before, began := w.p.links[0].Count(), time.Now()
	end := time.NewTimer(*sickFor)
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
	var report strings.Builder
	for _, kind := range []string{"busy", "idle"} {
		for _, ttl := range []time.Duration{15 * time.Second, 5 * time.Second} {
			n, lost, suspended := 0, int64(0), int64(0)
			var unconfirmed, held time.Duration
			for _, b := range w.all {
				if b.ttl != ttl || (b.pause > 0) != (kind == "busy") {
					continue
				}
				n++
				lost, suspended = lost+b.lost.Load(), suspended+b.suspended.Load()
				unconfirmed = max(unconfirmed, b.unconfirmed)
				held = max(held, time.Duration(b.held.Load()))
			}
			if n == 0 {
				continue
			}
			fmt.Fprintf(&report, "\n%d %s sessions of %v: %d lost, %d suspensions, longest without a confirmation %v, longest Lock and Unlock %v",
				n, kind, ttl, lost, suspended, unconfirmed, held)
			bad += lost + suspended
		}
	}
	for method, n := range sent {
		fmt.Fprintf(&report, "\n%s: %.2f per session and second", method, float64(n)/float64(len(w.all))/took.Seconds())
	}
	t.Logf("%v:%s", took.Round(time.Second), report.String())
	return bad
}

// Figures, which nothing is asserted of: how long a lock takes at most when etcd's
// leader is killed, stopped or cut off, beside a Put that a program repeats by
// itself each half second.
func TestLocksAroundTheEndOfALeader(t *testing.T) {
	for i := range long(6, 0, 0) {
		name, strike := "leader killed", func(m *etcdtest.Server) error { m.Stop(); return nil }
		if i%2 == 1 {
			name, strike = "leader stopped", (*etcdtest.Server).Pause
		}
		t.Run(name, func(t *testing.T) {
			p := admit(t, 3, "")
			leader, _ := leaderAndOthers(t, p.cluster)
			w := p.watch(t, 15*time.Second)
			longest, ctx := new(atomic.Int64), w.ctx
			cli := p.client(t)
			w.running.Go(func() { barePuts(ctx, cli, longest) })
			if err := strike(leader); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.heal)
			bad := w.look(t)
			t.Logf("longest bare Put %v; %d sessions lost or suspended", time.Duration(longest.Load()), bad)
		})
	}
}

// barePuts puts a key again and again, as a program does without this module.
func barePuts(ctx context.Context, cli *clientv3.Client, longest *atomic.Int64) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ; ctx.Err() == nil; <-tick.C {
		began := time.Now()
		for ctx.Err() == nil {
			attempt, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
			_, err := cli.Put(attempt, "bare", "")
			cancel()
			if err == nil {
				longest.Store(max(longest.Load(), int64(time.Since(began))))
				break
			}
		}
	}
}
