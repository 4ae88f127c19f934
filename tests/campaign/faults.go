//go:build linux

package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/tests/internal/family"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// disturb calls do until ctx ends.
func (f *round) disturb(ctx context.Context, r *rand.Rand, do func(context.Context, *rand.Rand)) {
	for ctx.Err() == nil {
		pauseFor(ctx, family.UpTo(r, 2*time.Second))
		if ctx.Err() == nil {
			do(ctx, r)
		}
	}
}

func pauseFor(ctx context.Context, d time.Duration) {
	end := time.NewTimer(d)
	defer end.Stop()
	select {
	case <-end.C:
	case <-ctx.Done():
	}
}

// during records a fault while do runs.
func (f *round) during(process, what string, do func()) {
	from := sinceBoot()
	f.mu.Lock()
	i := len(f.faults)
	f.faults = append(f.faults, fault{what, oracle.Fault{Process: process, From: from, To: from + time.Hour}})
	f.mu.Unlock()
	do()
	f.mu.Lock()
	f.faults[i].To = sinceBoot()
	f.mu.Unlock()
}

// disturbCluster makes members fail.
func (f *round) disturbCluster(ctx context.Context, r *rand.Rand) {
	within, cancel := context.WithTimeout(ctx, 5*time.Second)
	leader, err := f.cluster.Leader(within)
	cancel()
	if err != nil {
		return
	}
	m, who := leader, "the leader"
	if r.IntN(2) == 0 {
		if other := f.cluster.Member(r.IntN(3)); other != leader {
			m, who = other, "a follower"
		}
	}
	longest := min(18*time.Second, f.round/2)
	stop := func(d time.Duration) {
		if err := m.Pause(); err == nil {
			pauseFor(ctx, d)
			_ = m.Resume()
		}
	}
	switch r.IntN(10) {
	case 0, 1:
		f.during("", who+" is stopped", func() { stop(longest/9 + family.UpTo(r, longest)) })
	case 2, 3: // slow commits
		f.during("", who+" stops for a moment, again and again", func() {
			for range 3 + r.IntN(12) {
				stop(100*time.Millisecond + family.UpTo(r, 300*time.Millisecond))
				pauseFor(ctx, 50*time.Millisecond+family.UpTo(r, 300*time.Millisecond))
			}
		})
	case 4:
		f.during("", who+" is cut off from its peers", func() {
			f.cluster.Partition(m)
			pauseFor(ctx, time.Second+family.UpTo(r, longest/2))
			f.cluster.Heal()
		})
	case 5:
		f.during("", "the members are far apart", func() {
			f.cluster.Delay(10*time.Millisecond + family.UpTo(r, 150*time.Millisecond))
			pauseFor(ctx, time.Second+family.UpTo(r, longest/2))
			f.cluster.Heal()
		})
	case 6:
		f.during("", who+" is killed", func() {
			m.Stop()
			pauseFor(ctx, family.UpTo(r, 3*time.Second))
			for m.Restart() != nil { // its port is taken for a moment
			}
		})
	case 7:
		f.during("", "another member is made the leader", func() { f.moveLeader(ctx, r) })
	case 8:
		f.during("", who+" is defragmented", func() {
			within, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			cli, err := m.NewClient()
			if err != nil {
				return
			}
			defer cli.Close()
			_, _ = cli.Defragment(within, m.Endpoints()[0])
		})
	case 9:
		f.during("", who+" is replaced", func() { f.replace(m) })
	}
}

// replace replaces a member by a new one without data.
func (f *round) replace(m *etcdtest.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := f.cluster.Replace(ctx, m)
	for err != nil && ctx.Err() == nil {
		err = f.cluster.Replace(ctx, m)
	}
	if err != nil {
		f.failf("a member could not be replaced: %v", err)
	}
}

// moveLeader has etcd's leader hand over to another member.
func (f *round) moveLeader(ctx context.Context, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	next := r.IntN(3)
	var ids [3]uint64
	var leader uint64
	for i, cli := range f.history.clients {
		status, err := cli.Status(ctx, cli.Endpoints()[0])
		if err != nil {
			return
		}
		ids[i], leader = status.Header.MemberId, status.Leader
	}
	for i, id := range ids {
		if id == leader && ids[next] != leader {
			_, _ = f.history.clients[i].MoveLeader(ctx, ids[next])
		}
	}
}

// disturbProcess makes a process or its connection fail. Its holds last as long, so that they are lost. Each of two
// lanes has its own processes.
func (f *round) disturbProcess(ctx context.Context, r *rand.Rand, lane int) {
	i := lane + 2*r.IntN((len(f.workers)+1-lane)/2)
	w := f.workers[i]
	name := processOf(w.id)
	check := func(err error) {
		if err != nil {
			f.failf("%s: %v", w.id, err)
		}
	}
	during := func(what string, begin, end func()) {
		for range 30 { // until it holds
			if f.holds(w.id) {
				break
			}
			pauseFor(ctx, 50*time.Millisecond)
		}
		check(w.Tell("keep"))
		f.during(name, what, func() {
			begin()
			pauseFor(ctx, family.UpTo(r, []time.Duration{time.Second, 5 * time.Second, 12 * time.Second}[r.IntN(3)]))
			end()
		})
	}
	kinds := 8
	if w.link == nil { // only its process fails
		kinds = 3
	}
	switch r.IntN(kinds) {
	case 0, 1:
		during(stopsProcess, func() { check(w.Stop(context.WithoutCancel(ctx))) }, func() { check(w.Continue()) })
	case 2:
		f.mu.Lock()
		f.killed = append(f.killed, w.id)
		generation := len(f.killed)
		f.mu.Unlock()
		during("a process is killed", func() { check(w.Signal(syscall.SIGKILL)); <-w.ended }, func() {})
		f.end(w)
		next, err := f.start(i, generation, r)
		if check(err); err == nil {
			f.workers[i] = next
		}
		return
	case 3:
		during("connections are reset", w.link.Cut, w.link.Heal)
	case 4:
		during("connections are silent", w.link.BlackHole, w.link.Heal)
	case 5:
		during("connections carry no replies", w.link.BlackHoleReplies, w.link.Heal)
	case 6:
		during("replies are lost", w.link.BlackHoleReplies, func() { w.link.Cut(); w.link.Heal() })
	case 7:
		during("connections are slow", func() { w.link.Delay(family.UpTo(r, 200*time.Millisecond)) }, w.link.Heal)
	}
	check(w.Tell("go on"))
}

const stopsProcess = "a process is stopped"

// holds reports whether a process holds a lock.
func (f *round) holds(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.holding[id] > 0
}

// unrecorded is an auditor for requests whose effects are judged.
var unrecorded = audit.Func(func(context.Context, audit.Record) {})

// interfere acts as an administrator.
func (f *round) interfere(ctx context.Context, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cli := f.history.clients[r.IntN(len(f.history.clients))]
	count := func(what string) { f.during("", what, func() {}) }
	resp, err := cli.Get(ctx, oracle.Keys, clientv3.WithPrefix())
	if err != nil {
		return
	}
	entries := slices.DeleteFunc(resp.Kvs, func(kv *mvccpb.KeyValue) bool { return !oracle.IsEntry(string(kv.Key)) })
	if len(entries) == 0 {
		return
	}
	kv := entries[r.IntN(len(entries))]
	if r.IntN(2) == 0 { // the oldest holds
		kv = slices.MinFunc(entries, func(a, b *mvccpb.KeyValue) int { return int(a.CreateRevision - b.CreateRevision) })
	}
	kinds := 8
	if f.cluster.foreign() { // the history is everybody's
		kinds = 7
	}
	switch r.IntN(kinds) {
	case 0, 1, 2:
		lease := clientv3.LeaseID(kv.Lease)
		f.mu.Lock()
		f.revoked[lease] = true
		f.mu.Unlock()
		if _, err := cli.Revoke(ctx, lease); err == nil {
			count("a lease is revoked by hand")
		}
	case 3:
		f.mu.Lock()
		f.byHand[entryID(kv)] = true
		f.mu.Unlock()
		same := clientv3.Compare(clientv3.CreateRevision(string(kv.Key)), "=", kv.CreateRevision)
		resp, err := cli.Txn(ctx).If(same).Then(clientv3.OpDelete(string(kv.Key))).Commit()
		if err == nil && resp.Succeeded {
			count("an entry is deleted by hand")
		}
	case 4, 5, 6:
		name, kind := f.names[r.IntN(len(f.names))], holdfast.KindLock
		if r.IntN(4) == 0 {
			kind = holdfast.KindElection
		}
		adm := admin.New(cli, &admin.Options{Owner: "administrator", Auditor: unrecorded})
		q, err := adm.Show(ctx, kind, name)
		if holders := q.Holders(); err == nil && len(holders) > 0 {
			do, what := adm.Kick, "a holder is asked to let go"
			if r.IntN(2) == 0 {
				do, what = adm.Remove, "a holder is removed"
			}
			if do(ctx, kind, name, holders[r.IntN(len(holders))].Token, "a test") == nil {
				count(what)
			}
		}
	case 7:
		if _, err := cli.Compact(ctx, f.history.complete()); err == nil {
			count("the history is compacted")
		}
	}
}
