package simulation

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/tests/internal/family"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// surprise revokes the lease of a holder, or of a waiter, and has others release and give up just before and after:
// what they leave behind must not hide from a waiter that the former is yet to be told.
func (s *simulation) surprise(r *rand.Rand) {
	if s.quiet {
		defer s.makeSick(r, s.processes[r.IntN(len(s.processes))])()
		time.Sleep(family.UpTo(r, time.Second))
	}
	queues := make(map[string][]*mvccpb.KeyValue)
	for _, kv := range s.srv.Keys(oracle.Keys) {
		if key := string(kv.Key); oracle.IsEntry(key) {
			queue := oracle.PartOf(key).Prefix
			queues[queue] = append(queues[queue], kv)
		}
	}
	maps.DeleteFunc(queues, func(_ string, entries []*mvccpb.KeyValue) bool { return len(entries) < 2 })
	if len(queues) == 0 {
		return
	}
	names := slices.Sorted(maps.Keys(queues))
	entries := queues[names[r.IntN(len(names))]]
	if r.IntN(2) == 0 { // where most is going on
		entries = queues[slices.MaxFunc(names, func(a, b string) int { return cmp.Compare(len(queues[a]), len(queues[b])) })]
	}
	victims := 1 // those that hold
	for victims < len(entries) && isShared(entries[victims]) && isShared(entries[0]) {
		victims++
	}
	if r.IntN(4) == 0 {
		victims = len(entries)
	}
	lease := clientv3.LeaseID(entries[r.IntN(victims)].Lease)
	i := slices.IndexFunc(s.processes, func(c *process) bool { return c.session().Lease() == lease })
	if i < 0 {
		return
	}
	c := s.processes[i]
	c.link.Plan(s.late(s.fates(c, 300+uint64(r.IntN(1000)))))
	if r.IntN(2) == 0 {
		s.hurryUp(c, r)
		time.Sleep(family.UpTo(r, 3*s.profile.latency))
	}
	s.log(fmt.Sprintf("lease %x of a contender revoked: %v", int64(lease), s.srv.Revoke(lease)))
	if r.IntN(4) == 0 {
		s.revoke(r)
	}
	for _, who := range [][][]int{{nil, nil}, {{waiters}, {holders}}}[r.IntN(2)] {
		time.Sleep(family.UpTo(r, []time.Duration{3 * s.profile.latency, 300 * time.Millisecond}[r.IntN(2)]))
		s.hurryUp(c, r, who...)
	}
	time.Sleep(lockDelay)
	c.link.Plan(s.fates(c, 300+uint64(r.IntN(1000))))
}

func isShared(entry *mvccpb.KeyValue) bool { return oracle.PartOf(string(entry.Key)).Shared }

// late delays what watches tell by less than the lock delay, and what polls do by less than half of it. Where members
// may be sick, polls are late anyway: a copy must go to another one.
func (s *simulation) late(fate func(etcdfake.Call) etcdfake.Fate) func(etcdfake.Call) etcdfake.Fate {
	return func(call etcdfake.Call) etcdfake.Fate {
		f := fate(call)
		if call.Request == nil || call.Method == "Txn" && !s.quiet {
			f.Reply += 400 * time.Millisecond
		}
		return f
	}
}

// The parts of process.hurry.
const (
	waiters = iota
	holders
)

// hurryUp hurries the waiters of some clients, or the holders, or both, but not those of one client.
func (s *simulation) hurryUp(but *process, r *rand.Rand, who ...int) {
	if drawn := [][]int{{waiters}, {holders}, {waiters, holders}}[r.IntN(3)]; who == nil {
		who = drawn
	}
	for _, c := range s.processes {
		if c == but || r.IntN(3) == 0 {
			continue
		}
		c.mu.Lock()
		for _, i := range who {
			c.end[i]()
			c.hurry[i], c.end[i] = context.WithCancel(context.Background())
		}
		c.mu.Unlock()
	}
}

// hurried returns a context that ends when waiters are to give up, or holders to release.
func (c *process) hurried(who int) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hurry[who]
}
