//go:build linux

package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/tests/internal/family"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// A clusterFault is one of the members.
type clusterFault struct {
	often int // how many lots it has
	least int // how many members it needs
	do    func(ctx context.Context, r *rand.Rand, m *etcdtest.Server, who string)

	replaces bool // it replaces a member
}

// clusterFaults are those of this round.
func (n nemesis) clusterFaults() []clusterFault {
	all := []clusterFault{
		{often: 2, least: 1, do: n.stopLong}, {often: 2, least: 1, do: n.stopOften}, {often: 1, least: 2, do: n.cutOff},
		{often: 1, least: 2, do: n.moveApart}, {often: 1, least: 1, do: n.killMember},
		{often: 1, least: 2, do: func(ctx context.Context, r *rand.Rand, _ *etcdtest.Server, _ string) {
			n.during("", "another member is made the leader", func() { n.moveLeader(ctx, r) })
		}},
		{often: 1, least: 1, do: n.defragment},
		{often: 1, least: 2, replaces: true, do: func(_ context.Context, _ *rand.Rand, m *etcdtest.Server, who string) {
			n.during("", who+" is replaced", func() { n.replace(m) })
		}},
		{often: 1, least: 1, do: n.fillStore}, {often: 1, least: 1, do: n.commitSlowly},
	}
	if n.cluster.user != "" {
		all = slices.DeleteFunc(all, func(f clusterFault) bool { return f.replaces }) // package etcdtest has no user for it
		all = append(all, clusterFault{often: 3, least: 1, do: n.withdrawRole},
			clusterFault{often: 2, least: 1, do: n.rotateTokens})
	}
	if n.number%3 == 1 { // no lane stops or replaces processes meanwhile
		all = append(all, clusterFault{often: 2, least: 1, do: n.standStill})
	}
	return all
}

// disturbCluster makes members fail.
func (n nemesis) disturbCluster(ctx context.Context, r *rand.Rand) {
	m, who, err := n.aMember(ctx, r)
	if err != nil {
		return
	}
	var lots []clusterFault
	for _, f := range n.clusterFaults() {
		for range f.often {
			if len(n.cluster.Members()) >= f.least {
				lots = append(lots, f)
			}
		}
	}
	lots[r.IntN(len(lots))].do(ctx, r, m, who)
}

// aMember returns the leader one time of two, and else perhaps a follower.
func (n nemesis) aMember(ctx context.Context, r *rand.Rand) (m *etcdtest.Server, who string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if m, err = n.leader(ctx); err != nil {
		return nil, "", err
	}
	if members := n.cluster.Members(); r.IntN(2) == 0 {
		if other := members[r.IntN(len(members))]; other != m {
			return other, "a follower", nil
		}
	}
	return m, "the leader", nil
}

// longest is for how long a member is stopped.
func (n nemesis) longest() time.Duration { return min(18*time.Second, n.options.round/2) }

func stop(ctx context.Context, m *etcdtest.Server, d time.Duration) {
	if err := m.Pause(); err == nil {
		pauseFor(ctx, d)
		_ = m.Resume()
	}
}

func (n nemesis) stopLong(ctx context.Context, r *rand.Rand, m *etcdtest.Server, who string) {
	n.during("", who+" is stopped", func() { stop(ctx, m, n.longest()/9+family.UpTo(r, n.longest())) })
}

// stopOften makes commits slow.
func (n nemesis) stopOften(ctx context.Context, r *rand.Rand, m *etcdtest.Server, who string) {
	n.during("", who+" stops for a moment, again and again", func() {
		for range 3 + r.IntN(12) {
			stop(ctx, m, 100*time.Millisecond+family.UpTo(r, 300*time.Millisecond))
			pauseFor(ctx, 50*time.Millisecond+family.UpTo(r, 300*time.Millisecond))
		}
	})
}

func (n nemesis) cutOff(ctx context.Context, r *rand.Rand, m *etcdtest.Server, who string) {
	n.during("", who+" is cut off from its peers", func() {
		n.cluster.Partition(m)
		pauseFor(ctx, time.Second+family.UpTo(r, n.longest()/2))
		n.cluster.Heal()
	})
}

func (n nemesis) moveApart(ctx context.Context, r *rand.Rand, _ *etcdtest.Server, _ string) {
	n.during("", "the members are far apart", func() {
		n.cluster.Delay(10*time.Millisecond + family.UpTo(r, 150*time.Millisecond))
		pauseFor(ctx, time.Second+family.UpTo(r, n.longest()/2))
		n.cluster.Heal()
	})
}

func (n nemesis) killMember(ctx context.Context, r *rand.Rand, m *etcdtest.Server, who string) {
	n.during("", who+" is killed", func() {
		m.Stop()
		pauseFor(ctx, family.UpTo(r, 3*time.Second))
		for m.Restart() != nil { // its port is taken for a moment
		}
	})
}

func (n nemesis) defragment(ctx context.Context, _ *rand.Rand, m *etcdtest.Server, who string) {
	n.during("", who+" is defragmented", func() {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		cli, err := n.cluster.ofMember(m)
		if err != nil {
			return
		}
		defer cli.Close()
		_, _ = cli.Defragment(ctx, m.Endpoints()[0])
	})
}

// fillStore raises etcd's alarm NOSPACE, as a member does whose store is full, and ends it, as an operator does who has
// freed some of it. Meanwhile etcd refuses puts and leases.
func (n nemesis) fillStore(ctx context.Context, r *rand.Rand, _ *etcdtest.Server, _ string) {
	cli := n.history.clients[r.IntN(len(n.history.clients))]
	n.during("", "the store is full", func() {
		within, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, _ = pb.NewMaintenanceClient(cli.ActiveConnection()).Alarm(within, &pb.AlarmRequest{
			Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE,
		})
		cancel()
		pauseFor(ctx, family.UpTo(r, 8*time.Second))
		n.freeStore(r)
	})
}

// freeStore ends all alarms: one may have been raised although its request had no reply.
func (n nemesis) freeStore(r *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		cli := n.history.clients[r.IntN(len(n.history.clients))]
		within, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := pb.NewMaintenanceClient(cli.ActiveConnection()).Alarm(within, &pb.AlarmRequest{
			Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE,
		})
		cancel()
		if err == nil {
			return
		}
	}
	n.failf("the alarm of a full store could not be ended")
}

// commitSlowly makes commits take 5 s, two or three times: all members stop together, so that none becomes the leader
// meanwhile for want of heartbeats.
func (n nemesis) commitSlowly(ctx context.Context, r *rand.Rand, _ *etcdtest.Server, _ string) {
	n.during("", "commits take 5 s", func() {
		for range 2 + r.IntN(2) {
			n.stopAll(ctx, 5*time.Second)
			pauseFor(ctx, 100*time.Millisecond+family.UpTo(r, 500*time.Millisecond))
		}
	})
}

// stopAll stops all members.
func (n nemesis) stopAll(ctx context.Context, d time.Duration) {
	var all sync.WaitGroup
	for _, m := range n.cluster.Members() {
		all.Go(func() { stop(ctx, m, d) })
	}
	all.Wait()
}

// standStill stops all members and processes together, as a virtual machine that is moved. The judge goes on.
func (n nemesis) standStill(ctx context.Context, r *rand.Rand, _ *etcdtest.Server, _ string) {
	d := 200*time.Millisecond + family.UpTo(r, n.longest()/2)
	n.during(oracle.Everywhere, "the machine stands still", func() {
		var all sync.WaitGroup
		for _, w := range n.workers {
			if err := w.Stop(context.WithoutCancel(ctx)); err != nil {
				n.failf("%s: %v", w.id, err)
				continue
			}
			defer func() {
				if err := w.Continue(); err != nil {
					n.failf("%s: %v", w.id, err)
				}
			}()
		}
		all.Go(func() { n.stopAll(ctx, d) })
		all.Wait()
	})
}

// lag stops a follower, but for a moment of each two seconds, as long as the round lasts: its connections stay, and so
// do the watches that it holds, which tell late.
func (n nemesis) lag(ctx context.Context, r *rand.Rand) {
	within, cancel := context.WithTimeout(ctx, 5*time.Second)
	leader, err := n.leader(within)
	cancel()
	if err != nil {
		return
	}
	m := n.cluster.Member(r.IntN(len(n.cluster.Members())))
	for m == leader {
		m = n.cluster.Member(r.IntN(len(n.cluster.Members())))
	}
	n.during("", "a follower lags until the round ends", func() {
		for ctx.Err() == nil {
			stop(ctx, m, 2*time.Second)
			pauseFor(ctx, 20*time.Millisecond)
		}
	})
}

// replace replaces a member by a new one without data.
func (n nemesis) replace(m *etcdtest.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := n.cluster.Replace(ctx, m)
	for err != nil && ctx.Err() == nil {
		err = n.cluster.Replace(ctx, m)
	}
	if err != nil {
		n.failf("a member could not be replaced: %v", err)
	}
}

// moveLeader has etcd's leader hand over to another member.
func (n nemesis) moveLeader(ctx context.Context, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	next := r.IntN(len(n.history.clients))
	ids, leader := make([]uint64, len(n.history.clients)), uint64(0)
	for i, cli := range n.history.clients {
		status, err := cli.Status(ctx, cli.Endpoints()[0])
		if err != nil {
			return
		}
		ids[i], leader = status.Header.MemberId, status.Leader
	}
	for i, id := range ids {
		if id == leader && ids[next] != leader {
			_, _ = n.history.clients[i].MoveLeader(ctx, ids[next])
		}
	}
}
