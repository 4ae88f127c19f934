package robustness

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// profile says which faults a schedule has and how many. Some schedules have few kinds,
// so that others do not hide their effects.
type profile struct {
	latency time.Duration // maximum, one way
	lose    float64       // probability of losing a request, and of losing a reply
	slow    float64       // probability of delaying either by up to 3 s
	late    float64       // probability of delaying a request by seconds to hours
	every   time.Duration // average time between faults of a connection or of the cluster
	force   bool          // an administrator deletes entries and session keys and revokes leases
	revoke  bool          // etcd revokes live leases, one or two at once
	hasty   bool          // most callers give up before a reply can arrive
	skip    bool          // all processes are paused
	calm    bool          // the network loses nothing, and is fast
	reopen  bool          // processes close their sessions and open others
	kinds   [allKinds]int // of locks: how often each is acquired
	resizes bool          // limits of semaphores change
	still   bool          // nothing fails, and permits are held for long by few: see drawPermits
}

func drawProfile(r *rand.Rand) profile {
	pick := func(values ...float64) float64 { return values[r.IntN(len(values))] }
	return profile{
		latency: time.Duration(pick(1, 5, 50, 300) * float64(time.Millisecond)),
		lose:    pick(0, 0, 0.02, 0.1),
		slow:    pick(0, 0.02, 0.1),
		late:    pick(0, 0.02, 0.1),
		every:   time.Duration(pick(1, 3, 10) * float64(time.Second)),
		force:   r.IntN(3) == 0,
		skip:    r.IntN(3) == 0,
		revoke:  r.IntN(3) == 0,
		hasty:   r.IntN(3) == 0,
		reopen:  r.IntN(3) == 0,
	}
}

// upTo returns a random duration in [0, limit).
func upTo(r *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(limit)))
}

// fates draws the fate of each call of a connection. Each kind of call has its own random source: the Go scheduler
// decides which of several goroutines that wake at the same instant sends first, and that must not change which request
// is lost.
func (s *simulation) fates(c *simClient, part uint64) func(etcdfake.Call) etcdfake.Fate {
	var mu sync.Mutex // protects sources
	sources := make(map[string]*rand.Rand)
	return func(call etcdfake.Call) etcdfake.Fate {
		kind := kindOf(call)
		if txn, ok := call.Request.(*pb.TxnRequest); ok && len(txn.Success) > 1 && txn.Success[0].GetRequestTxn() != nil {
			s.batches.Add(1)
		}
		mu.Lock()
		defer mu.Unlock()
		r := sources[kind]
		if r == nil {
			h := fnv.New64a()
			h.Write([]byte(kind))
			r = rand.New(rand.NewPCG(s.seed, part^h.Sum64()))
			sources[kind] = r
		}
		f := s.profile.draw(r)
		if f.LoseRequest || f.LoseReply || f.Request+f.Reply > simAttempt/2 {
			// The limits of the oracle do not apply during this fault.
			s.noteFault(c, min(f.Request+f.Reply, simAttempt))
		}
		return f
	}
}

// kindOf returns the method, and for a Txn its numbers of operations and the queues that
// it puts to.
func kindOf(call etcdfake.Call) string {
	txn, ok := call.Request.(*pb.TxnRequest)
	if !ok {
		return call.Method
	}
	kind := fmt.Sprint(call.Method, len(txn.Compare), len(txn.Success), len(txn.Failure))
	for _, op := range txn.Success {
		if put := op.GetRequestPut(); put != nil {
			kind += string(put.Key[:bytes.LastIndexByte(put.Key, '/')])
		}
	}
	return kind
}

func (p profile) draw(r *rand.Rand) etcdfake.Fate {
	f := etcdfake.Fate{Request: time.Microsecond + upTo(r, p.latency), Reply: time.Microsecond + upTo(r, p.latency)}
	switch dice := r.Float64(); {
	case dice < p.lose:
		f.LoseRequest, f.Silent = true, r.IntN(2) == 0
	case dice < 2*p.lose:
		f.LoseReply, f.Silent = true, r.IntN(2) == 0
	}
	if r.IntN(8) == 0 {
		f.Code = codes.Canceled // as from a proxy; clientv3 repeats even writes after it
	}
	if r.Float64() < p.slow {
		f.Request += upTo(r, 3*time.Second)
	}
	if r.Float64() < p.slow {
		f.Reply += upTo(r, 3*time.Second)
	}
	if r.Float64() < p.late {
		f.Request += upTo(r, []time.Duration{10 * time.Second, time.Minute, time.Minute, 3 * time.Hour}[r.IntN(4)])
	}
	return f
}

// noteFault records that a fault of a connection lasts until d from now at most.
func (s *simulation) noteFault(c *simClient, d time.Duration) {
	until := int64(s.now() + d)
	for {
		known := c.healed.Load()
		if known >= until || c.healed.CompareAndSwap(known, until) {
			return
		}
	}
}

// injectFaults makes connections and the cluster fail until s.stop.
func (s *simulation) injectFaults() {
	for i, c := range s.clients {
		c.link.Plan(s.fates(c, 200+uint64(i)))
	}
	r := s.source(1)
	for {
		time.Sleep(upTo(r, 2*s.profile.every) + time.Millisecond)
		if s.stop.Load() || s.profile.still {
			return
		}
		c := s.clients[r.IntN(len(s.clients))]
		// At most twice the longest TTL.
		d := upTo(r, []time.Duration{time.Second, 3 * time.Second, 10 * time.Second}[r.IntN(3)]) + time.Millisecond
		heal := func() {
			c.link.Heal()
			c.link.Plan(s.fates(c, 300+uint64(r.IntN(1000))))
		}
		if (s.family || s.permits) && r.IntN(3) > 0 {
			s.surprise(r)
			continue
		}
		if s.profile.force && r.IntN(2) == 0 {
			s.force(r)
			continue
		}
		if s.profile.revoke && r.IntN(2) == 0 {
			s.revoke(r)
			continue
		}
		trouble := func(d time.Duration) { s.troubled.Store(int64(s.now() + d + simAttempt)) }
		switch n := r.IntN(10); n {
		case 0, 1, 2:
			s.log(fmt.Sprint("session ", c.id, ": ", [...]string{"cut", "black hole", "no replies"}[n], " for ", d))
			[]func(){c.link.Cut, c.link.BlackHole, c.link.BlackHoleReplies}[n]()
			s.noteFault(c, d+simAttempt)
			time.Sleep(d)
			heal()
		case 3:
			s.log(fmt.Sprint("session ", c.id, ": reset"))
			s.noteFault(c, simAttempt)
			c.link.Reset()
		case 4, 5:
			s.log(fmt.Sprint("new leader, the old one acknowledges renewals for ", d))
			trouble(d)
			s.srv.ChangeLeader(d)
		case 6:
			s.log(fmt.Sprint("no leader for ", d))
			for _, c := range s.clients {
				s.noteFault(c, d+simAttempt)
			}
			trouble(d + 3*time.Second)
			s.srv.LoseLeader()
			time.Sleep(d)
			s.srv.ChangeLeader(upTo(r, 3*time.Second))
		case 7:
			s.log("compacted")
			trouble(0)
			s.srv.Compact()
			c.link.Reset() // an idle watch starts again from a compacted revision
			s.noteFault(c, simAttempt)
		case 8:
			s.log("watches canceled")
			trouble(0)
			s.srv.CancelWatches(rpctypes.ErrNoLeader)
		case 9:
			if s.profile.skip {
				s.log(fmt.Sprint("all processes paused for ", d))
				for _, c := range s.clients {
					c.offset.Add(int64(float64(d) * c.rate))
				}
				s.mu.Lock()
				s.skips = append(s.skips, s.now())
				s.mu.Unlock()
				trouble(0)
				s.srv.Skip(d)
			}
		}
	}
}

// revoke acts as a leader of etcd that resumes after a pause and revokes leases that its
// successor has renewed.
func (s *simulation) revoke(r *rand.Rand) {
	for range 1 + r.IntN(2) {
		lease := s.clients[r.IntN(len(s.clients))].session().Lease()
		s.log(fmt.Sprintf("lease %x revoked: %v", int64(lease), s.srv.Revoke(lease)))
	}
}

// force acts as an administrator who deletes an entry or a session key or revokes a
// lease.
func (s *simulation) force(r *rand.Rand) {
	switch r.IntN(6) {
	case 0:
		s.revoke(r)
		return
	case 1:
		sess := s.clients[r.IntN(len(s.clients))].session()
		key := lease.Open(sess.Ref()).SessionKey(sess.Lease())
		s.log(fmt.Sprint("deleted ", key, ": ", s.srv.Delete(key)))
		return
	}
	var entries []string
	for _, kv := range s.srv.Keys(simEntries) {
		if isEntry(string(kv.Key)) {
			entries = append(entries, string(kv.Key))
		}
	}
	if len(entries) > 0 {
		key := entries[r.IntN(len(entries))]
		s.log("deleted " + key)
		s.srv.Delete(key)
	}
}
