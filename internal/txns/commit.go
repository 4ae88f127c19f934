package txns

import (
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/sending"
)

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
	Sender *sending.Sender
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
		return t.Once(ctx, c.Sender, sending.Write)
	}
	p, full := c.enqueue(t)
	if p == nil {
		defer func() {
			if batch := c.next(); batch != nil {
				c.sendBatches(batch)
			}
		}()
		return t.Once(ctx, c.Sender, sending.Write)
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
		r, err := t.Once(ctx, c.Sender, sending.Write)
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
	r, err := all.Once(ctx, c.Sender, sending.Write)
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
