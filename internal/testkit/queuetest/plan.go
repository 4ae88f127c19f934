package queuetest

import (
	"maps"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
)

// KindOf returns the kind of a request of the queue, or the method of any other call. The kinds are "enqueue",
// "hand-off", "remove", "claim" (removes the claim of an entry that has gone), "clear" (removes those of others),
// "move" (to a lease of its own), "detach", "attach", "mark" (of a permit), "poll", "read" (a look, too), "committed
// read" (which etcd takes for a write), "watch" and "event"; "held" (writes held_since to an entry); "gate" (puts the
// session key), "session" (reads it) and "session watch".
func KindOf(c etcdfake.Call) string {
	switch r := c.Request.(type) {
	case *pb.TxnRequest:
		puts, deletes, held := contents(r.Success)
		switch {
		case held && len(r.Compare) > 0:
			return "mark"
		case held:
			return "held"
		case puts && len(r.Compare) > 0 && r.Compare[0].GetCreateRevision() > 0:
			return "move"
		case puts && len(r.Success) == 2 && r.Success[0].GetRequestPut() != nil && r.Success[1].GetRequestTxn() != nil:
			return []string{"detach", "attach"}[len(r.Compare)-1]
		case puts && deletes:
			return "hand-off"
		case puts:
			return "enqueue"
		case deletes && len(r.Compare) > 0 && r.Compare[0].GetModRevision() > 0:
			return "clear"
		case deletes && !slices.ContainsFunc(r.Success, func(op *pb.RequestOp) bool {
			return !isClaim(string(op.GetRequestDeleteRange().GetKey()))
		}):
			return "claim"
		case deletes:
			return "remove"
		case slices.ContainsFunc(r.Success, func(op *pb.RequestOp) bool { return op.GetRequestTxn() != nil }):
			return "committed read"
		case len(r.Compare) == 0:
			return "read"
		case len(r.Success) > 0 && ofSession(r.Success[0].GetRequestRange().GetKey()):
			return "session" // and an errand
		case len(r.Success) > 0:
			return "read"
		}
		return "poll"
	case *pb.PutRequest:
		return "gate"
	case *pb.RangeRequest:
		if r.RangeEnd != nil {
			return "read"
		}
		return "session"
	case clientv3.Op:
		return watchOf(r.KeyBytes())
	case *pb.WatchCreateRequest:
		return watchOf(r.Key)
	case nil:
		return "event"
	}
	return c.Method
}

func watchOf(key []byte) string {
	if ofSession(key) {
		return "session watch"
	}
	return "watch"
}

func ofSession(key []byte) bool { return strings.HasPrefix(string(key), "holdfast/session/") }

func contents(ops []*pb.RequestOp) (puts, deletes, held bool) {
	for _, op := range ops {
		puts = puts || op.GetRequestPut() != nil
		deletes = deletes || op.GetRequestDeleteRange() != nil
		held = held || op.GetRequestPut().GetIgnoreLease()
		if inner := op.GetRequestTxn(); inner != nil {
			p, d, h := contents(inner.Success)
			puts, deletes, held = puts || p, deletes || d, held || h
		}
	}
	return puts, deletes, held
}

// Plan has fate decide what becomes of the n-th request of each kind from now on,
// counted from 1, and counts them. With a nil fate all arrive.
func (p *Process) Plan(fate func(kind string, n int) etcdfake.Fate) {
	p.mu.Lock()
	p.sent = make(map[string]int)
	p.mu.Unlock()
	p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
		p.mu.Lock()
		defer p.mu.Unlock()
		kind := KindOf(c)
		p.sent[kind]++
		if fate == nil {
			return etcdfake.Fate{}
		}
		return fate(kind, p.sent[kind])
	})
}

// PlanOne decides the fate of the first request of a kind. All others arrive.
func (p *Process) PlanOne(kind string, f etcdfake.Fate) {
	p.Plan(func(k string, n int) etcdfake.Fate {
		if k == kind && n == 1 {
			return f
		}
		return etcdfake.Fate{}
	})
}

// PlanAll decides the fate of all requests of a kind. Others arrive.
func (p *Process) PlanAll(kind string, f etcdfake.Fate) {
	p.Plan(func(k string, _ int) etcdfake.Fate {
		if k == kind {
			return f
		}
		return etcdfake.Fate{}
	})
}

// Counts returns the number of requests since Plan, by kind.
func (p *Process) Counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.sent)
}

// Unheard calls f while the process's watches tell nothing, and then ends them: what
// f does has no known revision.
func (p *Process) Unheard(srv *etcdfake.Server, f func()) {
	p.Plan(func(kind string, _ int) etcdfake.Fate {
		if kind == "event" {
			return etcdfake.Fate{Reply: 24 * time.Hour}
		}
		return etcdfake.Fate{}
	})
	f()
	srv.CancelWatches(rpctypes.ErrNoLeader)
	p.Plan(nil)
}
