package requests

import (
	"context"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcderr"
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

// Once sends t as [Once] does: while a member does not answer, it sends copies to others.
func (t Txn) Once(ctx context.Context, s *Sender, k Kind) (Reply, error) {
	r, unanswered, err := OnceWithin(ctx, s, k, nil, t.through(s))
	r.Unanswered = unanswered
	return r, err
}

// Ask sends t as [Ask] does.
func (t Txn) Ask(ctx context.Context, s *Sender, k Kind) (Reply, error) {
	return Ask(ctx, s, k, t.through(s))
}

// ReadAll sends reads as one linearizable Txn.
func ReadAll(ctx context.Context, s *Sender, reads ...clientv3.Op) (Reply, error) {
	return Txn{Then: reads}.Ask(ctx, s, Read)
}

func (t Txn) through(s *Sender) func(ctx context.Context) (Reply, error) {
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
func (r Reply) First(i int) *mvccpb.KeyValue {
	if kvs := r.Responses[i].GetResponseRange().Kvs; len(kvs) != 0 {
		return kvs[0]
	}
	return nil
}

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

const (
	// maxInFlight is how many requests are in flight before further Txns are batched. An idle session never gets there.
	maxInFlight = 4

	// maxBatch is the largest batch. etcd applies a Txn in one step and limits it to 128 operations. A full batch is sent
	// at once, even above maxInFlight.
	maxBatch = 16

	// maxWait is how long a Txn waits in a batch that is not full. It is short against a round trip to a far cluster, and
	// long enough for a busy session to fill a batch.
	maxWait = time.Millisecond
)

// Committer sends the Txns of a session. It groups them as a database groups the commits in its log: while maxInFlight
// requests are in flight, further Txns wait, and are then sent as one Txn that contains them all. That is one message,
// one entry in etcd's log and one wait for its disks. Each Txn in a batch keeps its own comparisons and its own answer.
//
// The keys that a batch puts have one create revision, so none of them would be ahead of another. Therefore a batch has
// at most one Txn about each queue, and a Txn about keys that may belong to several is sent alone. It also follows that
// the Txns of a batch are about different keys, so it makes no difference that etcd evaluates all comparisons before it
// writes anything.
//
// A batch has one outcome in three cases. If it is not answered, the outcome of each Txn is unknown. If etcd refuses
// it, perhaps because of a single Txn, then nothing was carried out and each Txn is sent alone. If the store is full,
// etcd may have carried out the batch before it reported that: then the Txns that put nothing are sent alone, and the
// others fail.
type Committer struct {
	Sender *Sender
	Go     func(f func(ctx context.Context)) bool // runs f on a goroutine of the session, unless that is closed

	mu       sync.Mutex // protects what follows
	inFlight int
	batch    []*pending
	overdue  *time.Timer // runs flushOverdue; set while batch is not empty
}

// pending is a Txn in a batch.
type pending struct {
	Txn
	done chan struct{} // closed when the rest is set

	reply  Reply
	err    error
	resend bool // its caller must send it again, alone
}

// Commit sends t, alone or in a batch, and returns etcd's reply or error, or ctx's error. After an error, Reply says
// what may have happened. Unless t is sent alone, ctx must be done when the session is closed.
func (c *Committer) Commit(ctx context.Context, t Txn) (Reply, error) {
	if t.About == "" {
		return t.Once(ctx, c.Sender, Write)
	}
	p, full := c.enqueue(t)
	if p == nil {
		defer func() {
			if batch := c.next(); batch != nil {
				c.sendBatches(batch)
			}
		}()
		r, unanswered, err := OnceWithin(ctx, c.Sender, Write, nil, t.through(c.Sender)) // as Once does
		r.Unanswered = unanswered
		return r, err
	}
	if full != nil {
		c.sendBatches(full)
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		unsent := c.cancel(p)
		return Reply{Unsent: unsent, Unanswered: !unsent}, ctx.Err()
	}
	if p.resend {
		r, err := t.Once(ctx, c.Sender, Write)
		r.Unanswered = r.Unanswered || p.reply.Unanswered
		return r, err
	}
	return p.reply, p.err
}

// enqueue returns nil if fewer than maxInFlight Txns are in flight, or if the batch has one about the same: then the
// caller must send t, and afterwards what next returns. Otherwise t is queued in the batch. If that fills the batch, it
// is returned as full, and the caller must send it.
func (c *Committer) enqueue(t Txn) (p *pending, full []*pending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	same := func(other *pending) bool { return other.About == t.About }
	if c.inFlight < maxInFlight || slices.ContainsFunc(c.batch, same) {
		c.inFlight++
		return nil, nil
	}
	p = &pending{Txn: t, done: make(chan struct{})}
	if c.batch = append(c.batch, p); len(c.batch) == 1 {
		c.overdue = time.AfterFunc(maxWait, c.flushOverdue)
	}
	if len(c.batch) < maxBatch {
		return p, nil
	}
	c.inFlight++
	return p, c.takeLocked()
}

// flushOverdue sends the current batch. It runs maxWait after the first Txn joined it.
func (c *Committer) flushOverdue() {
	c.mu.Lock()
	if len(c.batch) == 0 {
		c.mu.Unlock()
		return
	}
	c.inFlight++
	batch := c.takeLocked()
	c.mu.Unlock()
	c.sendBatches(batch)
}

// cancel removes p from the batch and reports whether it was still unsent.
func (c *Committer) cancel(p *pending) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.batch)
	c.batch = slices.DeleteFunc(c.batch, func(other *pending) bool { return other == p })
	if len(c.batch) == 0 {
		c.overdue.Stop()
	}
	return len(c.batch) < n
}

// next records that a request was answered, and returns the batch to send in its place, or nil.
func (c *Committer) next() []*pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.batch) == 0 || c.inFlight > maxInFlight {
		c.inFlight--
		return nil
	}
	return c.takeLocked()
}

func (c *Committer) takeLocked() []*pending {
	c.overdue.Stop()
	batch := c.batch
	c.batch = nil
	return batch
}

// sendBatches sends a batch, and after its reply the next one, on a goroutine that Close joins. If the session is
// closed, it sends nothing: then the context of each caller is done.
func (c *Committer) sendBatches(batch []*pending) {
	c.Go(func(ctx context.Context) {
		for ; batch != nil; batch = c.next() {
			c.sendBatch(ctx, batch)
		}
	})
}

// sendBatch sends a batch and gives each Txn its reply. ctx is the session's, so a caller that gives up does not cancel
// the Txns of others.
func (c *Committer) sendBatch(ctx context.Context, batch []*pending) {
	var all Txn
	for _, p := range batch {
		all.Then = append(all.Then, clientv3.OpTxn(p.If, p.Then, p.Else))
	}
	r, err := all.Once(ctx, c.Sender, Write)
	class := etcderr.Classify(err)
	storeFull := class == etcderr.Unknown && !etcderr.Pending(err)
	for i, p := range batch {
		p.reply.Unanswered = r.Unanswered
		switch class {
		case etcderr.OK:
			p.reply = r.Inner(i)
		case etcderr.Permanent, etcderr.Unauthorized, etcderr.LeaseGone:
			p.resend = true
		default:
			p.err = err
			if storeFull && !p.puts() {
				p.resend, p.reply.Unanswered = true, true
			}
		}
		close(p.done)
	}
}
