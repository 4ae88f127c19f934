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
	"github.com/holdfast-go/holdfast/internal/names"
)

// Txn is a request.
type Txn struct {
	About      string // the queue: no batch has two Txns about one; empty: a [Committer] sends it alone
	If         []clientv3.Cmp
	Then, Else []clientv3.Op
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

// Reply is etcd's reply to a Txn. Unanswered is also set beside an error.
type Reply struct {
	Succeeded bool // the comparisons were true
	Header    *pb.ResponseHeader
	Responses []*pb.ResponseOp

	// Unanswered: a copy of the Txn was sent and has no reply. It may have been carried out, or may still be, whatever
	// the other copies have.
	Unanswered bool
}

// Range returns the reply to operation i, which reads.
func (r Reply) Range(i int) *pb.RangeResponse { return r.Responses[i].GetResponseRange() }

// First returns the first key of operation i, a read, or nil.
func (r Reply) First(i int) *mvccpb.KeyValue { return First(r.Range(i).Kvs) }

// Inner returns the reply to operation i, which is a Txn.
func (r Reply) Inner(i int) Reply {
	own := r.Responses[i].GetResponseTxn()
	return Reply{own.Succeeded, r.Header, own.Responses, r.Unanswered}
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

// Ops collects the operations of a Txn. The number that Add returns finds the reply to an operation.
type Ops []clientv3.Op

// Add adds operations and returns the number of the first. The others follow it.
func (o *Ops) Add(ops ...clientv3.Op) (first int) {
	first = len(*o)
	*o = append(*o, ops...)
	return first
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

// Committer sends the Txns of a session. It groups them like a database the commits in its log: while maxInFlight
// requests are in flight, further Txns wait for a batch. A batch is a single Txn with all of them in it: one message,
// one entry in etcd's log and one wait for its disks. Each Txn in a batch keeps its own comparisons and its own reply.
//
// A batch has at most one Txn about each queue, and a Txn about several queues goes alone.
type Committer struct {
	Sender *Sender
	Go     func(f func(ctx context.Context)) bool // runs f on a goroutine of the session, unless that is closed

	mu       sync.Mutex // protects what follows
	inFlight int
	waits    *batch // nil: no Txn waits
}

// batch is a group of Txns, sent as one.
type batch struct {
	txns   []Txn
	left   int    // how many of their callers have given up
	cancel func() // ends the request; nil until it is sent

	done  chan struct{} // closed when the rest is set
	reply Reply
	err   error
}

// Commit sends t, alone or in a batch, and returns etcd's reply or error, or ctx's error. After an error, Reply says
// what may have happened: a caller that gives up does not cancel the Txns of others. Unless t is sent alone, ctx must
// end with the session.
func (c *Committer) Commit(ctx context.Context, t Txn) (Reply, error) {
	if t.About == "" {
		return t.Once(ctx, c.Sender, Write)
	}
	b, i, full := c.join(t)
	if b == nil {
		defer func() { c.send(c.replied()) }()
		return t.Once(ctx, c.Sender, Write)
	}
	c.send(full)
	select {
	case <-b.done:
	case <-ctx.Done():
		c.leave(b)
		return Reply{Unanswered: true}, ctx.Err()
	}
	class := etcderr.Classify(b.err)
	switch {
	case class == etcderr.OK:
		return b.reply.Inner(i), nil
	case class == etcderr.Transient, etcderr.Pending(b.err): // of each Txn: it was not done yet, or that is not known
		return Reply{Unanswered: b.reply.Unanswered}, b.err
	}
	// Etcd has refused the batch, perhaps because of a single Txn, so each goes alone and gets its own verdict. If the
	// store is full, etcd may have carried out the batch before.
	r, err := t.Once(ctx, c.Sender, Write)
	r.Unanswered = r.Unanswered || b.reply.Unanswered || class == etcderr.Unknown
	return r, err
}

// join adds t to the waiting batch, and returns the batch and the place of t. If the batch is full now, the caller must
// send it. join returns no batch if fewer than maxInFlight requests are in flight, or if the waiting batch has a Txn
// about the same queue: then the caller must send t.
func (c *Committer) join(t Txn) (b *batch, i int, full *batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// All keys of a batch have one create revision, so of two in one queue none would be ahead:
	//
	//	four Txns are in flight · Txns about the queues a, b, c come, and one more about a: that is sent alone
	//	a reply comes: a batch of a, b and c is sent · rev 20: all their keys have create revision 20
	//
	// Thus the Txns of a batch are about different keys. It does no harm that etcd evaluates all comparisons before it
	// writes anything.
	same := func(other Txn) bool { return other.About == t.About }
	if c.inFlight < maxInFlight || c.waits != nil && slices.ContainsFunc(c.waits.txns, same) {
		c.inFlight++
		return nil, 0, nil
	}
	if c.waits == nil {
		overdue := &batch{done: make(chan struct{})}
		c.waits = overdue
		time.AfterFunc(maxWait, func() { c.send(c.take(overdue)) })
	}
	b, i = c.waits, len(c.waits.txns)
	if b.txns = append(b.txns, t); i+1 == maxBatch {
		full = c.takeLocked()
	}
	return b, i, full
}

// leave records that a caller of b has given up. The last one ends the request: its copies would make callers that wait
// stand in line for theirs.
func (c *Committer) leave(b *batch) {
	c.mu.Lock()
	b.left++
	cancel, last := b.cancel, b.left == len(b.txns)
	c.mu.Unlock()
	if last && cancel != nil {
		cancel()
	}
}

// begin returns the context for the request of b: it ends when all callers have given up.
func (c *Committer) begin(ctx context.Context, b *batch) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	b.cancel = cancel
	gone := b.left == len(b.txns)
	c.mu.Unlock()
	if gone {
		cancel()
	}
	return ctx
}

// take returns b if it still waits, or nil. The caller must send it.
func (c *Committer) take(b *batch) *batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waits != b {
		return nil
	}
	return c.takeLocked()
}

// replied records the end of a request, and returns the batch to send in its place, or nil.
func (c *Committer) replied() *batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inFlight--; c.waits == nil || c.inFlight >= maxInFlight {
		return nil
	}
	return c.takeLocked()
}

func (c *Committer) takeLocked() (b *batch) {
	b, c.waits = c.waits, nil
	c.inFlight++
	return b
}

// send sends a batch, and after its reply the next, on a goroutine that Close joins. If the session is closed, it sends
// nothing: then the context of each caller is done.
func (c *Committer) send(b *batch) {
	if b == nil {
		return
	}
	c.Go(func(ctx context.Context) {
		for ; b != nil; b = c.replied() {
			var all Txn
			for _, t := range b.txns {
				all.Then = append(all.Then, clientv3.OpTxn(t.If, t.Then, t.Else))
			}
			b.reply, b.err = all.Once(c.begin(ctx, b), c.Sender, Write)
			b.cancel()
			close(b.done)
		}
	})
}

// Hook leads packages of this module from a lock or term to the hold behind it. A lock or term embeds a Hook under an
// unexported name. Its method is unexported, too, so users cannot call it.
type Hook struct{ hold Ender }

// Ender is a hold. EndStale ends it because an entry of it is gone.
type Ender interface{ EndStale() }

// NewHook returns the hook of a hold.
func NewHook(hold Ender) Hook { return Hook{hold} }

func (h Hook) behind() Ender { return h.hold }

// Behind returns the hold behind a lock or term; nil for nil, for a zero value, and for other holders, such as a
// user's own.
func Behind(holder any) Ender {
	if h, ok := holder.(interface{ behind() Ender }); ok && !names.IsNil(holder) {
		return h.behind()
	}
	return nil
}

// Refused ends the hold behind a lock or term, because etcd has refused a fenced write for it: an entry of it is gone.
func Refused(holder any) {
	if hold := Behind(holder); hold != nil {
		hold.EndStale()
	}
}
