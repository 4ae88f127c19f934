package queue

import (
	"context"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/lease"
)

const (
	// maxInFlight is how many requests a session has in flight before further
	// Txns are batched. An idle session never gets there.
	maxInFlight = 4

	// maxBatch is the largest batch. etcd applies a Txn in one step and limits it
	// to 128 operations. A full batch is sent at once, even above maxInFlight.
	maxBatch = 16

	// maxWait is how long a Txn waits in a batch that is not full. It is short
	// against a round trip to a far cluster, and long enough for a busy session
	// to fill a batch.
	maxWait = time.Millisecond
)

// txn is a request about one queue.
type txn struct {
	queue     string // the entries prefix of the queue
	cmps      []clientv3.Cmp
	then, els []clientv3.Op
	alone     bool // must not be batched
}

// puts reports whether t may need room in the store.
func (t txn) puts() bool {
	return slices.ContainsFunc(slices.Concat(t.then, t.els), clientv3.Op.IsPut)
}

// reply is what etcd has answered to a txn. unanswered and unsent are also set beside an error.
type reply struct {
	succeeded bool
	header    *pb.ResponseHeader
	responses []*pb.ResponseOp

	// unanswered: a copy of the Txn was sent and not answered. It may have been
	// carried out, or may still be, even if another copy was answered.
	unanswered bool

	unsent bool // no copy was sent, and none will be
}

// committer sends the Txns of a session. It groups them as a database groups the
// commits in its log: while maxInFlight requests are in flight, further Txns
// wait, and are then sent as one Txn that contains them all. That is one
// message, one entry in etcd's log and one wait for its disks. Each Txn in a
// batch keeps its own comparisons and its own answer.
//
// The entries that a batch puts have one create revision, so neither of two
// entries would be ahead of the other. Therefore a batch has at most one Txn
// about each queue, and Txns about foreign prefixes, which may contain each
// other, are sent alone. It also follows that the Txns of a batch are about
// different keys, so it makes no difference that etcd evaluates all comparisons
// before it writes anything.
//
// A batch has one outcome in three cases. If it is not answered, the outcome of
// each Txn is unknown. If etcd refuses it, perhaps because of a single Txn, then
// nothing was carried out and each Txn is sent alone. If the store is full, etcd
// may have carried out the batch before it reported that: then the Txns that
// put nothing are sent alone, and the others fail.
type committer struct {
	host lease.Host

	mu       sync.Mutex // protects what follows
	inFlight int
	batch    []*pending
	overdue  *time.Timer // runs flushOverdue; set while batch is not empty
}

// pending is a Txn in a batch.
type pending struct {
	txn
	done chan struct{} // closed when the rest is set

	reply  reply
	err    error
	resend bool // its caller must send it again, alone
}

// commit sends t, alone or in a batch, and returns etcd's reply or error, or ctx's
// error. After an error, reply says what may have happened. ctx must end with a
// lease, so that it is done when the session is closed.
func (c *committer) commit(ctx context.Context, t txn) (reply, error) {
	if t.alone {
		return c.send(ctx, t)
	}
	p, full := c.enqueue(t)
	if p == nil {
		defer c.done()
		return c.send(ctx, t)
	}
	if full != nil {
		c.sendBatches(full)
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		unsent := c.cancel(p)
		return reply{unsent: unsent, unanswered: !unsent}, ctx.Err()
	}
	if p.resend {
		r, err := c.send(ctx, t)
		r.unanswered = r.unanswered || p.reply.unanswered
		return r, err
	}
	return p.reply, p.err
}

// send sends t. While a member does not answer, it sends copies to others.
func (c *committer) send(ctx context.Context, t txn) (reply, error) {
	send := func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return c.host.Client().Txn(ctx).If(t.cmps...).Then(t.then...).Else(t.els...).Commit()
	}
	resp, unanswered, err := attempt.Once(ctx, c.host.Sender(), attempt.Write, send)
	if err != nil {
		return reply{unanswered: unanswered}, err
	}
	return reply{resp.Succeeded, resp.Header, resp.Responses, unanswered, false}, nil
}

// enqueue returns nil if fewer than maxInFlight Txns are in flight, or if the batch has
// one about the same queue: then the caller must send t and call done afterwards.
// Otherwise t is queued in the batch. If that fills the batch, it is returned as full,
// and the caller must send it.
func (c *committer) enqueue(t txn) (p *pending, full []*pending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sameQueue := func(other *pending) bool { return other.queue == t.queue }
	if c.inFlight < maxInFlight || slices.ContainsFunc(c.batch, sameQueue) {
		c.inFlight++
		return nil, nil
	}
	p = &pending{txn: t, done: make(chan struct{})}
	if c.batch = append(c.batch, p); len(c.batch) == 1 {
		c.overdue = time.AfterFunc(maxWait, c.flushOverdue)
	}
	if len(c.batch) < maxBatch {
		return p, nil
	}
	c.inFlight++
	return p, c.takeLocked()
}

// flushOverdue sends the current batch. It runs maxWait after the first Txn
// joined it.
func (c *committer) flushOverdue() {
	c.mu.Lock()
	var batch []*pending
	if len(c.batch) > 0 {
		c.inFlight++
		batch = c.takeLocked()
	}
	c.mu.Unlock()
	if batch != nil {
		c.sendBatches(batch)
	}
}

// cancel removes p from the batch and reports whether it was still unsent.
func (c *committer) cancel(p *pending) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.batch)
	c.batch = slices.DeleteFunc(c.batch, func(other *pending) bool { return other == p })
	if len(c.batch) == 0 {
		c.overdue.Stop()
	}
	return len(c.batch) < n
}

// done records that a request was answered, and sends the batch that waited for it.
func (c *committer) done() {
	if batch := c.next(); batch != nil {
		c.sendBatches(batch)
	}
}

// next records that a request was answered, and returns the batch to send in its place, or nil.
func (c *committer) next() []*pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.batch) == 0 || c.inFlight > maxInFlight {
		c.inFlight--
		return nil
	}
	return c.takeLocked()
}

func (c *committer) takeLocked() []*pending {
	c.overdue.Stop()
	batch := c.batch
	c.batch = nil
	return batch
}

// sendBatches sends a batch, and after its reply the next one, on a goroutine
// that Close joins. If the session is closed, it sends nothing: then the context
// of each caller is done.
func (c *committer) sendBatches(batch []*pending) {
	c.host.Go(func(ctx context.Context) {
		for ; batch != nil; batch = c.next() {
			c.sendBatch(ctx, batch)
		}
	})
}

// sendBatch sends a batch and gives each Txn its reply. ctx is the session's, so a caller that gives up does not cancel
// the Txns of others.
func (c *committer) sendBatch(ctx context.Context, batch []*pending) {
	var all txn
	for _, p := range batch {
		all.then = append(all.then, clientv3.OpTxn(p.cmps, p.then, p.els))
	}
	r, err := c.send(ctx, all)
	class := etcderr.Classify(err)
	storeFull := class == etcderr.Unknown && !etcderr.Pending(err)
	for i, p := range batch {
		p.reply.unanswered = r.unanswered
		switch class {
		case etcderr.OK:
			own := r.responses[i].GetResponseTxn()
			p.reply = reply{own.Succeeded, r.header, own.Responses, r.unanswered, false}
		case etcderr.Permanent, etcderr.Unauthorised, etcderr.LeaseGone:
			p.resend = true
		default:
			p.err = err
			if storeFull && !p.puts() {
				p.resend, p.reply.unanswered = true, true
			}
		}
		close(p.done)
	}
}
