// Package txns sends Txns to etcd, several in one request if many are due, and says what became of each.
package txns

import (
	"context"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/sending"
)

// Txn is a request.
type Txn struct {
	About      string // the queue: no batch has two Txns about one; empty: a [Committer] sends it alone
	If         []clientv3.Cmp
	Then, Else []clientv3.Op
}

// puts reports whether t may need room in the store.
func (t Txn) puts() bool {
	return slices.ContainsFunc(slices.Concat(t.Then, t.Else), clientv3.Op.IsPut)
}

// Once sends t as [sending.Once] does: while a member does not answer, it sends copies to others.
func (t Txn) Once(ctx context.Context, s *sending.Sender, k sending.Kind) (Reply, error) {
	r, unanswered, err := sending.Once(ctx, s, k, t.through(s))
	r.Unanswered = unanswered
	return r, err
}

// Ask sends t as [sending.Ask] does.
func (t Txn) Ask(ctx context.Context, s *sending.Sender, k sending.Kind) (Reply, error) {
	return sending.Ask(ctx, s, k, t.through(s))
}

// Read sends reads as one linearizable Txn.
func Read(ctx context.Context, s *sending.Sender, reads ...clientv3.Op) (Reply, error) {
	return Txn{Then: reads}.Ask(ctx, s, sending.Read)
}

func (t Txn) through(s *sending.Sender) func(ctx context.Context) (Reply, error) {
	return func(ctx context.Context) (Reply, error) {
		resp, err := s.Txn(ctx).If(t.If...).Then(t.Then...).Else(t.Else...).Commit()
		if err != nil {
			return Reply{}, err
		}
		return Reply{Succeeded: resp.Succeeded, Header: resp.Header, Responses: resp.Responses}, nil
	}
}

// Reply is what etcd has answered to a Txn. Unanswered and Unsent are also set beside an error.
type Reply struct {
	Succeeded bool // the comparisons were true
	Header    *pb.ResponseHeader
	Responses []*pb.ResponseOp

	// Unanswered: a copy of the Txn was sent and not answered. It may have been carried out, or may still be, even if
	// another copy was answered.
	Unanswered bool
	Unsent     bool // no copy was sent, and none will be
}

// Range returns the reply to operation i, which reads.
func (r Reply) Range(i int) *pb.RangeResponse { return r.Responses[i].GetResponseRange() }

// First returns the first key that operation i has read, or nil.
func (r Reply) First(i int) *mvccpb.KeyValue { return First(r.Range(i).Kvs) }

// Inner returns the reply to operation i, which is a Txn.
func (r Reply) Inner(i int) Reply {
	own := r.Responses[i].GetResponseTxn()
	return Reply{own.Succeeded, r.Header, own.Responses, r.Unanswered, r.Unsent}
}

// First returns the first of some keys, or nil.
func First(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	if len(kvs) == 0 {
		return nil
	}
	return kvs[0]
}

// MaxOps keeps a Txn below etcd's default limit of 128 operations, with room for some more.
const MaxOps = 100

// Ops collects the operations of a Txn. Add tells the number by which the reply to an operation is read.
type Ops []clientv3.Op

// Add adds operations and returns the number of the first. The others follow it.
func (o *Ops) Add(ops ...clientv3.Op) (first int) {
	first = len(*o)
	*o = append(*o, ops...)
	return first
}

// AddGroups adds groups of reads, of at most MaxOps each. Only if there is no room for all is each a Txn in the Txn:
// etcd takes that for a write, whatever is in it, commits it, and waits for its disks.
func (o *Ops) AddGroups(groups [][]clientv3.Op) Groups {
	all := slices.Concat(groups...)
	if len(*o)+len(all) > MaxOps {
		g := Groups{nested: true}
		for _, group := range groups {
			g.from = append(g.from, o.Add(clientv3.OpTxn(nil, group, nil)))
		}
		return g
	}
	var g Groups
	for _, group := range groups {
		g.from = append(g.from, o.Add(group...))
	}
	g.from = append(g.from, len(*o))
	return g
}

// Groups says where the replies are to what AddGroups has added.
type Groups struct {
	nested bool
	from   []int // the first operation of each group and, unless they are nested, what follows the last
}

// Of returns the replies to group i, out of that to the Txn.
func (g Groups) Of(r Reply, i int) Reply {
	if g.nested {
		return r.Inner(g.from[i])
	}
	r.Responses = r.Responses[g.from[i]:g.from[i+1]]
	return r
}
