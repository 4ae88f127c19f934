//go:build linux

package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/tests/internal/family"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// A nemesis makes the faults of a round.
type nemesis struct{ *round }

// disturbAll makes faults until the round is over.
func (n nemesis) disturbAll(ctx context.Context, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, n.options.round)
	defer cancel()
	var lanes sync.WaitGroup
	lane := func(do func(context.Context, *rand.Rand)) {
		r := rand.New(rand.NewPCG(r.Uint64(), 0))
		lanes.Go(func() { n.disturb(ctx, r, do) })
	}
	switch {
	case n.cluster.foreign():
	case n.number%7 == 5 && len(n.cluster.Members()) > 2:
		lane(n.lag)
	default:
		lane(n.disturbCluster)
	}
	if n.number%2 == 0 {
		lane(n.interfere)
	}
	if n.number%3 != 1 {
		for i := range 2 {
			lane(func(ctx context.Context, r *rand.Rand) { n.disturbProcess(ctx, r, i) })
		}
	}
	lanes.Wait()
}

// disturb calls do until ctx ends.
func (n nemesis) disturb(ctx context.Context, r *rand.Rand, do func(context.Context, *rand.Rand)) {
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
func (n nemesis) during(process, what string, do func()) {
	from := sinceBoot()
	n.mu.Lock()
	i := len(n.faults)
	n.faults = append(n.faults, fault{what, oracle.Fault{Process: process, From: from, To: from + time.Hour}})
	n.mu.Unlock()
	do()
	n.mu.Lock()
	n.faults[i].To = sinceBoot()
	n.mu.Unlock()
}

// disturbProcess makes a process or its connection fail. Its holds last as long, so that they are lost. Each of two
// lanes has its own processes.
func (n nemesis) disturbProcess(ctx context.Context, r *rand.Rand, lane int) {
	i := lane + 2*r.IntN((len(n.workers)+1-lane)/2)
	w := n.workers[i]
	name := processOf(w.id)
	check := func(err error) {
		if err != nil {
			n.failf("%s: %v", w.id, err)
		}
	}
	during := func(what string, begin, end func()) {
		for range 30 { // until it holds
			if n.holds(w.id) {
				break
			}
			pauseFor(ctx, 50*time.Millisecond)
		}
		check(w.Tell("keep"))
		n.during(name, what, func() {
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
		n.mu.Lock()
		n.killed = append(n.killed, w.id)
		generation := len(n.killed)
		n.mu.Unlock()
		during("a process is killed", func() { check(w.Signal(syscall.SIGKILL)); <-w.ended }, func() {})
		n.end(w)
		next, err := n.start(i, generation, r)
		if check(err); err == nil {
			n.workers[i] = next
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
func (n nemesis) holds(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.holding[id] > 0
}

// unrecorded is an auditor for requests whose effects are judged.
var unrecorded = audit.Func(func(context.Context, audit.Record) {})

// interfere acts as an administrator.
func (n nemesis) interfere(ctx context.Context, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cli := n.history.clients[r.IntN(len(n.history.clients))]
	count := func(what string) { n.during("", what, func() {}) }
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
	if n.cluster.foreign() { // the history is everybody's
		kinds = 7
	}
	switch r.IntN(kinds) {
	case 0, 1, 2:
		lease := clientv3.LeaseID(kv.Lease)
		n.mu.Lock()
		n.revoked[lease] = true
		n.mu.Unlock()
		if _, err := cli.Revoke(ctx, lease); err == nil {
			count("a lease is revoked by hand")
		}
	case 3:
		n.mu.Lock()
		n.byHand[entryID(kv)] = true
		n.mu.Unlock()
		same := clientv3.Compare(clientv3.CreateRevision(string(kv.Key)), "=", kv.CreateRevision)
		resp, err := cli.Txn(ctx).If(same).Then(clientv3.OpDelete(string(kv.Key))).Commit()
		if err == nil && resp.Succeeded {
			count("an entry is deleted by hand")
		}
	case 4, 5, 6:
		name, kind := n.names[r.IntN(len(n.names))], holdfast.KindLock
		if r.IntN(4) == 0 {
			kind = holdfast.KindElection
		}
		adm := admin.New(cli, admin.Options{Owner: "administrator", Auditor: unrecorded})
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
		if _, err := cli.Compact(ctx, n.history.complete()); err == nil {
			count("the history is compacted")
		}
	}
}
