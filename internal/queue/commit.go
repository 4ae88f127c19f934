package queue

import (
	"context"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/session"
)

const (
	// maxUnderWay is how many Txns of a session are under way before others have
	// to wait. A session that is not busy never gets there.
	maxUnderWay = 4

	// maxTogether bounds what goes together: etcd does nothing else while it
	// carries that out, and takes no more than 128 operations in one list. So
	// many do not wait any longer, whatever is under way.
	maxTogether = 16

	// maxWait bounds how long they wait. What is under way may hang, on a member
	// that hangs while the next request would go to another.
	maxWait = 100 * time.Millisecond
)

// txn is what one entry asks of etcd.
type txn struct {
	cmps      []clientv3.Cmp
	then, els []clientv3.Op
	alone     bool // must have a revision of its own
}

// puts reports whether t may need room in the store.
func (t txn) puts() bool {
	return slices.ContainsFunc(slices.Concat(t.then, t.els), clientv3.Op.IsPut)
}

// reply is the answer to a txn.
type reply struct {
	succeeded bool
	revision  int64 // of the store
	responses []*pb.ResponseOp

	// Also set beside an error:
	second bool // the txn was sent before, and may have been carried out then
	unsent bool // it was not sent, and will not be
}

// committer sends the Txns of a session's entries, by group commit as databases
// write their logs: while some are under way, those that come wait, and then go
// as one Txn of Txns, which is one message, one entry in etcd's log and one wait
// for its disks. Each has its own comparisons and its own answer; and as each is
// about keys of its own, it makes no difference that all comparisons are made
// before anything is written. The entries of a group have one create revision, so
// those that may stand in each other's queues, where foreign prefixes lie inside
// one another, go alone.
//
// They share their fate in one way: without an answer none knows of its own. When
// etcd refuses a group, for the sake of a single one perhaps, nothing was done,
// and each is sent apart. A full store refuses a group for those that put something,
// after it may have carried it out; then those that do not are sent apart.
type committer struct {
	sess *session.Session

	mu       sync.Mutex // protects what follows
	underWay int
	waiting  []*pending
	overdue  *time.Timer // runs while somebody waits
}

// pending is a txn that waits to go with others.
type pending struct {
	txn
	over chan struct{} // closed when the rest is set

	reply reply
	err   error
	apart bool // it is to be sent by itself: nothing was done, or, if err is set, perhaps
}

// commit sends t, by itself or with others. It ends with what etcd said, or
// ctx's error, and then t may have been sent unless the reply says otherwise. ctx
// must end with a lease: so it is over when the session is closed.
func (c *committer) commit(ctx context.Context, t txn) (reply, error) {
	if t.alone {
		return c.send(ctx, t)
	}
	p, group := c.line(t)
	if p == nil {
		defer c.landed()
		return c.send(ctx, t)
	}
	if group != nil {
		c.carry(group)
	}
	select {
	case <-p.over:
	case <-ctx.Done():
		return reply{unsent: c.leave(p)}, ctx.Err()
	}
	if p.apart {
		r, err := c.send(ctx, t)
		r.second = p.err != nil
		return r, err
	}
	return p.reply, p.err
}

func (c *committer) send(ctx context.Context, t txn) (reply, error) {
	resp, err := c.sess.Client().Txn(ctx).If(t.cmps...).Then(t.then...).Else(t.els...).Commit()
	if err != nil {
		return reply{}, err
	}
	return reply{succeeded: resp.Succeeded, revision: resp.Header.Revision, responses: resp.Responses}, nil
}

// line has t wait, if it has to, and returns the group that is complete by it, if
// there is one. Otherwise it returns nil: t is under way, and has landed when it is
// answered.
func (c *committer) line(t txn) (p *pending, group []*pending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.underWay < maxUnderWay {
		c.underWay++
		return nil, nil
	}
	p = &pending{txn: t, over: make(chan struct{})}
	if c.waiting = append(c.waiting, p); len(c.waiting) == 1 {
		c.overdue = time.AfterFunc(maxWait, c.hurry)
	}
	if len(c.waiting) < maxTogether {
		return p, nil
	}
	c.underWay++
	return p, c.takeLocked()
}

// hurry has those go who have waited for long enough.
func (c *committer) hurry() {
	c.mu.Lock()
	var group []*pending
	if len(c.waiting) > 0 { // they may just have gone
		c.underWay++
		group = c.takeLocked()
	}
	c.mu.Unlock()
	if group != nil {
		c.carry(group)
	}
}

// leave has p not be sent, if it still waits; otherwise it reports false.
func (c *committer) leave(p *pending) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.waiting)
	c.waiting = slices.DeleteFunc(c.waiting, func(w *pending) bool { return w == p })
	if len(c.waiting) == 0 && n > 0 {
		c.overdue.Stop()
	}
	return len(c.waiting) < n
}

// landed has those go who wait for it.
func (c *committer) landed() {
	if group := c.next(); group != nil {
		c.carry(group)
	}
}

// next is the group that may go now that something has landed, if there is one.
func (c *committer) next() []*pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 || c.underWay > maxUnderWay {
		c.underWay--
		return nil
	}
	return c.takeLocked()
}

func (c *committer) takeLocked() []*pending {
	c.overdue.Stop()
	group := c.waiting
	c.waiting = nil
	return group
}

// carry sends a group, and then those that have come meanwhile.
func (c *committer) carry(group []*pending) {
	// Refused if the session is closed: then nobody waits any more.
	c.sess.Base().Go(func(ctx context.Context) {
		for ; group != nil; group = c.next() {
			c.together(ctx, group)
		}
	})
}

// together sends a group. It ends with none of their contexts: whoever leaves
// must not take the others along.
func (c *committer) together(ctx context.Context, group []*pending) {
	ctx, cancel := context.WithTimeout(ctx, c.sess.Base().RetryPolicy().Attempt)
	defer cancel()
	var all txn
	for _, p := range group {
		all.then = append(all.then, clientv3.OpTxn(p.cmps, p.then, p.els))
	}
	r, err := c.send(quiet{ctx}, all)
	class := backoff.Classify(err)
	full := class == backoff.Unknown && !backoff.Pending(err)
	for i, p := range group {
		switch class {
		case backoff.OK:
			own := r.responses[i].GetResponseTxn()
			p.reply = reply{succeeded: own.Succeeded, revision: r.revision, responses: own.Responses}
		case backoff.Permanent, backoff.Unauthorised, backoff.LeaseGone:
			p.apart = true
		default: // not answered, or each may try again when it likes
			p.err, p.apart = err, full && !p.puts()
		}
		close(p.over)
	}
}
