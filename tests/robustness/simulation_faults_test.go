package robustness

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// profile is how bad a schedule is. Some are calm but for one thing, so that
// its effect is not drowned in everything else.
type profile struct {
	latency time.Duration // one way, at most
	lose    float64       // of requests and of replies
	slow    float64       // of either: up to 3 s
	late    float64       // of requests: seconds to hours
	every   time.Duration // between faults of a connection or of the cluster, on average
	force   bool          // entries and session keys are deleted, leases revoked
	revoke  bool          // etcd revokes leases that live, one or several at once
	hasty   bool          // most callers give up before they can be answered
	skip    bool          // all processes stop for a while
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
	}
}

func upTo(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(most)))
}

// fates draws the fate of each call of a connection. Each kind of call has a
// source of its own: goroutines that wake at the same instant send in an order
// that Go decides, and it must not be that which decides whose request is lost.
func (s *simulation) fates(c *simClient, part uint64) func(etcdfake.Call) etcdfake.Fate {
	var mu sync.Mutex // protects sources
	sources := make(map[string]*rand.Rand)
	return func(call etcdfake.Call) etcdfake.Fate {
		kind := kindOf(call)
		if txn, ok := call.Request.(*pb.TxnRequest); ok && len(txn.Success) > 1 && txn.Success[0].GetRequestTxn() != nil {
			s.groups.Add(1)
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
		f := s.nerve.draw(r)
		if f.LoseRequest || f.LoseReply || f.Request+f.Reply > simAttempt/2 {
			// Until all of this has passed nothing is promised to be quick.
			s.harm(c, min(f.Request+f.Reply, simAttempt))
		}
		return f
	}
}

// kindOf is the method, and for transactions the queue and how many operations
// they have.
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
		f.Code = codes.Canceled // a proxy gave up; clientv3 repeats even a write
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

// harm notes that a connection may do harm until d from now.
func (s *simulation) harm(c *simClient, d time.Duration) {
	until := int64(s.now() + d)
	for {
		known := c.calm.Load()
		if known >= until || c.calm.CompareAndSwap(known, until) {
			return
		}
	}
}

// disturb does what happens to whole connections and to the cluster.
func (s *simulation) disturb() {
	for i, c := range s.clients {
		c.link.Plan(s.fates(c, 200+uint64(i)))
	}
	r := s.source(1)
	for {
		time.Sleep(upTo(r, 2*s.nerve.every) + time.Millisecond)
		if s.stop.Load() {
			return
		}
		c := s.clients[r.IntN(len(s.clients))]
		// Twice the longest TTL at most.
		d := upTo(r, []time.Duration{time.Second, 3 * time.Second, 10 * time.Second}[r.IntN(3)]) + time.Millisecond
		heal := func() {
			c.link.Heal()
			c.link.Plan(s.fates(c, 300+uint64(r.IntN(1000))))
		}
		if s.nerve.force && r.IntN(2) == 0 {
			s.force(r)
			continue
		}
		if s.nerve.revoke && r.IntN(2) == 0 {
			s.revoke(r)
			continue
		}
		switch n := r.IntN(10); n {
		case 0, 1, 2:
			s.log(fmt.Sprint("session ", c.id, ": ", [...]string{"cut", "black hole", "no replies"}[n], " for ", d))
			[]func(){c.link.Cut, c.link.BlackHole, c.link.BlackHoleReplies}[n]()
			s.harm(c, d+simAttempt)
			time.Sleep(d)
			heal()
		case 3:
			s.log(fmt.Sprint("session ", c.id, ": reset"))
			s.harm(c, simAttempt)
			c.link.Reset()
		case 4, 5:
			s.log(fmt.Sprint("new leader, the old one lies for ", d))
			s.srv.ChangeLeader(d)
		case 6:
			s.log(fmt.Sprint("no leader for ", d))
			for _, c := range s.clients {
				s.harm(c, d+simAttempt)
			}
			s.srv.LoseLeader()
			time.Sleep(d)
			s.srv.ChangeLeader(upTo(r, 3*time.Second))
		case 7:
			s.log("compacted")
			s.srv.Compact()
			c.link.Reset() // an idle watch starts again from before
			s.harm(c, simAttempt)
		case 8:
			s.log("watches cancelled")
			s.srv.CancelWatches(rpctypes.ErrNoLeader)
		case 9:
			if s.nerve.skip {
				s.log(fmt.Sprint("all stopped for ", d))
				for _, c := range s.clients {
					c.offset.Add(int64(float64(d) * c.rate))
				}
				s.srv.Skip(d)
			}
		}
	}
}

// revoke is a leader of etcd that was stopped and goes on: leases are revoked that
// were renewed.
func (s *simulation) revoke(r *rand.Rand) {
	for range 1 + r.IntN(2) {
		lease := s.clients[r.IntN(len(s.clients))].sess.Lease()
		s.log(fmt.Sprintf("lease %x revoked: %v", int64(lease), s.srv.Revoke(lease)))
	}
}

// force is an administrator: an entry or a session key is deleted, or a lease
// revoked.
func (s *simulation) force(r *rand.Rand) {
	switch r.IntN(6) {
	case 0:
		s.revoke(r)
		return
	case 1:
		sess := s.clients[r.IntN(len(s.clients))].sess
		key := lease.Open(sess.Ref()).SessionKey(sess.Lease())
		s.log(fmt.Sprint("deleted ", key, ": ", s.srv.Delete(key)))
		return
	}
	for _, kv := range s.srv.Keys(simEntries) {
		if key := string(kv.Key); isEntry(key) && (r.IntN(2) == 0 || strings.Contains(key, "n1")) {
			s.log("deleted " + key)
			s.srv.Delete(key)
			return
		}
	}
}
