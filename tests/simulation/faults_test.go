package simulation

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
	"github.com/holdfast-go/holdfast/tests/internal/family"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// profile says which faults a schedule has and how many. Some schedules have few kinds,
// so that others do not hide their effects.
type profile struct {
	latency time.Duration     // maximum, one way
	lose    float64           // probability of losing a request, and of losing a reply
	slow    float64           // probability of delaying either by up to 3 s
	late    float64           // probability of delaying a request by seconds to hours
	every   time.Duration     // average time between faults of a connection or of the cluster
	force   bool              // an administrator deletes entries and session keys and revokes leases
	revoke  bool              // etcd revokes live leases, one or two at once
	hasty   bool              // most callers give up before a reply can arrive
	skip    bool              // all processes are paused
	calm    bool              // the network loses nothing, and is fast
	reopen  bool              // processes close their sessions and open others
	kinds   [family.Kinds]int // of locks: how often each is acquired
	resizes bool              // limits of semaphores change
	still   bool              // nothing fails, and permits are held for long by few: see drawPermits
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

// fates draws the fate of each call of a connection. Each kind of call has its own random source: the Go scheduler
// decides which of several goroutines that wake at the same instant sends first, and that must not change which request
// is lost.
func (s *simulation) fates(c *process, part uint64) func(etcdfake.Call) etcdfake.Fate {
	var mu sync.Mutex // protects sources
	sources := make(map[string]*rand.Rand)
	source := func(kind string) *rand.Rand {
		if sources[kind] == nil {
			h := fnv.New64a()
			h.Write([]byte(kind))
			sources[kind] = rand.New(rand.NewPCG(s.seed, part^h.Sum64()))
		}
		return sources[kind]
	}
	return func(call etcdfake.Call) etcdfake.Fate {
		if s.tooMany() {
			return etcdfake.Fate{LoseRequest: true, Silent: true}
		}
		kind := kindOf(call)
		if txn, ok := call.Request.(*pb.TxnRequest); ok && len(txn.Success) > 1 && txn.Success[0].GetRequestTxn() != nil {
			s.batches.Add(1)
		}
		mu.Lock()
		defer mu.Unlock()
		f := s.profile.draw(source(kind))
		s.breakUp(call, &f, source)
		if f.LoseRequest || f.LoseReply || f.Request+f.Reply > attempt/2 {
			// The limits of the oracle do not apply during this fault.
			s.noteFault(c, min(f.Request+f.Reply, attempt))
		}
		return f
	}
}

// breakUp loses, now and then, the reply to a put of several entries, and deletes one before the process can ask
// what has become of it: it finds the others.
func (s *simulation) breakUp(call etcdfake.Call, f *etcdfake.Fate, source func(kind string) *rand.Rand) {
	txn, ok := call.Request.(*pb.TxnRequest)
	if !ok || !s.family || s.profile.calm {
		return
	}
	var entries []string
	for _, op := range txn.Success {
		if put := op.GetRequestPut(); put != nil && oracle.IsEntry(string(put.Key)) {
			entries = append(entries, string(put.Key))
		}
	}
	if len(entries) < 2 {
		return
	}
	r := source("breakUp") // so that it changes no other number
	if r.IntN(6) > 0 {
		return
	}
	f.LoseRequest, f.LoseReply, f.Silent = false, true, false
	key := entries[r.IntN(len(entries))]
	time.AfterFunc(f.Request+time.Nanosecond, func() {
		s.log(fmt.Sprint("deleted ", key, " before the reply to its put is lost: ", s.srv.Delete(key)))
	})
}

// healthy is the plan of a connection without faults.
func (s *simulation) healthy(etcdfake.Call) etcdfake.Fate {
	lost := s.tooMany()
	return etcdfake.Fate{LoseRequest: lost, Silent: lost}
}

// mostRequests is how many requests and messages of streams a schedule may send. The busiest of thousands sends a sixth
// of that, and a loop that sends one after the other gets there within seconds.
const mostRequests = 50_000

// tooMany counts a request. When there are too many, something sends one after the other: the schedule fails, and all
// requests are lost from then on, so that it ends.
func (s *simulation) tooMany() bool {
	n := s.requests.Add(1)
	if n == mostRequests {
		s.fail("%d requests were sent: something repeats one without an end", n)
	}
	return n >= mostRequests
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
	latency := func() time.Duration { return time.Microsecond + family.UpTo(r, p.latency) }
	f := etcdfake.Fate{Request: latency(), Reply: latency()}
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
		f.Request += family.UpTo(r, 3*time.Second)
	}
	if r.Float64() < p.slow {
		f.Reply += family.UpTo(r, 3*time.Second)
	}
	if r.Float64() < p.late {
		f.Request += family.UpTo(r, []time.Duration{10 * time.Second, time.Minute, time.Minute, 3 * time.Hour}[r.IntN(4)])
	}
	return f
}

// injectFaults makes connections and the cluster fail until s.stop.
func (s *simulation) injectFaults() {
	for i, c := range s.processes {
		c.link.Plan(s.fates(c, 200+uint64(i)))
	}
	r := s.source(1)
	for {
		time.Sleep(family.UpTo(r, 2*s.profile.every) + time.Millisecond)
		if s.stop.Load() || s.profile.still {
			return
		}
		c := s.processes[r.IntN(len(s.processes))]
		// At most twice the longest TTL.
		d := family.UpTo(r, []time.Duration{time.Second, 3 * time.Second, 10 * time.Second}[r.IntN(3)]) + time.Millisecond
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
		switch n := r.IntN(10); n {
		case 0, 1, 2:
			s.log(fmt.Sprint("session ", c.id, ": ", [...]string{"cut", "black hole", "no replies"}[n], " for ", d))
			[]func(){c.link.Cut, c.link.BlackHole, c.link.BlackHoleReplies}[n]()
			s.noteFault(c, d+attempt)
			time.Sleep(d)
			heal()
		case 3:
			s.log(fmt.Sprint("session ", c.id, ": reset"))
			s.noteFault(c, attempt)
			c.link.Reset()
		case 4, 5:
			s.log(fmt.Sprint("new leader, the old one acknowledges renewals for ", d))
			s.trouble(d)
			s.srv.ChangeLeader(d)
		case 6:
			s.loseQuorum(r, d)
		case 7:
			s.log("compacted")
			s.trouble(0)
			s.srv.Compact()
			c.link.Reset() // an idle watch starts again from a compacted revision
			s.noteFault(c, attempt)
		case 8:
			s.log("watches canceled")
			s.trouble(0)
			s.srv.CancelWatches(rpctypes.ErrNoLeader)
		case 9:
			if s.profile.skip {
				s.log(fmt.Sprint("all processes paused for ", d))
				for _, c := range s.processes {
					c.offset.Add(int64(float64(d) * c.rate))
				}
				s.paused()
				s.trouble(0)
				s.srv.Skip(d)
			}
		}
	}
}

// loseQuorum leaves the cluster without a leader for d.
func (s *simulation) loseQuorum(r *rand.Rand, d time.Duration) {
	s.log(fmt.Sprint("no leader for ", d))
	for _, c := range s.processes {
		if d <= 2*lockDelay {
			s.noteFault(c, d+attempt)
			continue
		}
		s.mu.Lock()
		s.record.Faults = append(s.record.Faults,
			oracle.Fault{Process: c.name(), From: s.now(), To: s.now() + d + attempt, NoQuorum: true})
		s.mu.Unlock()
	}
	s.trouble(d + 3*time.Second)
	s.srv.LoseLeader()
	time.Sleep(d)
	s.srv.ChangeLeader(family.UpTo(r, 3*time.Second))
}

// trouble records a fault for d from now that no connection is to blame for.
func (s *simulation) trouble(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.Unsteady = append(s.record.Unsteady, oracle.Fault{From: s.now(), To: s.now() + d + attempt})
}

// revoke acts as a leader of etcd that resumes after a pause and revokes leases that its
// successor has renewed.
func (s *simulation) revoke(r *rand.Rand) {
	for range 1 + r.IntN(2) {
		lease := s.processes[r.IntN(len(s.processes))].session().Lease()
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
		sess := s.processes[r.IntN(len(s.processes))].session()
		key := oracle.SessionKey(sess.Lease())
		s.log(fmt.Sprint("deleted ", key, ": ", s.srv.Delete(key)))
		return
	}
	var entries []string
	for _, kv := range s.srv.Keys(oracle.Keys) {
		if oracle.IsEntry(string(kv.Key)) {
			entries = append(entries, string(kv.Key))
		}
	}
	if len(entries) > 0 {
		key := entries[r.IntN(len(entries))]
		s.log("deleted " + key)
		s.srv.Delete(key)
	}
}
