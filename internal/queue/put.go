package queue

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/calls"
	"github.com/holdfast-go/holdfast/internal/permits"
	"github.com/holdfast-go/holdfast/internal/places"
	"github.com/holdfast-go/holdfast/internal/reads"
	"github.com/holdfast-go/holdfast/internal/steps"
	"github.com/holdfast-go/holdfast/internal/txns"
)

var (
	// errGateMoved: the session key was put again after the request was made.
	errGateMoved = errors.New("the session key was put again after this request")
	// errKeyGone: the session key does not exist, or only in an older version, from a backup.
	errKeyGone = errors.New("the session key is missing, or older than the session knows it")
	// errAheadLeft: the entry to hand off is no longer behind the one that it waited for.
	errAheadLeft = errors.New("the entry ahead is gone")
)

// slowPut is the duration after which etcd's client may have sent a put twice:
// one copy may still be carried out although the other was answered.
const slowPut = time.Second

// condition of a put, beyond that the entry does not exist and the session key has not moved.
type condition struct {
	empty bool   // the queue is empty
	now   bool   // the permit can be held at once; otherwise, if another was put meanwhile, it is removed again
	after *entry // this entry stands and may be removed, which the same Txn does
}

// put puts the entries of the attempt into their queues, once however often the request is sent, and finds out which
// entry is ahead of each. It returns ctx's error, ErrOccupied, ErrEntryGone (another client deleted c.after or one of
// these entries), or etcd's error.
//
// Requests get calls.GiveUpWait after ctx has ended, because the entry of an answered put can be removed by its
// revision; otherwise it needs the sweeper.
func (a *attempt) put(ctx context.Context, c condition) error {
	rctx, cancel := calls.ForRequest(ctx, a.lease, calls.GiveUpWait)
	defer cancel()
	return calls.RetryUnder(ctx, a.q.host, a.lease, func(ctx context.Context) error {
		for a.entries[0].stage < created {
			if c.after != nil {
				if err := c.after.wait.untilRemovable(ctx); err != nil {
					return err
				}
			}
			err := a.tryPut(rctx, c)
			switch {
			case errors.Is(err, errAheadLeft):
				err = c.after.wait.verify(ctx)
			case errors.Is(err, errGateMoved), errors.Is(err, permits.ErrMoved):
				err = backoff.ContextErr(ctx) // if nil, send it with the new gate
			}
			if err != nil {
				return err
			}
		}
		for _, e := range a.entries {
			if e.stage < placed { // by a copy whose reply was lost
				if err := e.wait.locate(rctx); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// putting is a Txn that puts the entries of an attempt. The session key's mod revision is the gate: a copy that etcd
// carries out after the sweeper has put that key again does nothing.
type putting struct {
	txns.Txn
	gate  int64
	look  sight // of the entry that the Txn removes
	ahead int   // the reply that says what stood ahead of the first entry; those of the others follow
	epoch int
}

// putting builds the Txn.
func (a *attempt) putting(c condition) putting {
	p := putting{gate: a.lease.Gate()}
	n := len(a.entries)
	session := clientv3.ModRevision(a.q.host.SessionKey(a.lease.ID()))
	p.If = append(make([]clientv3.Cmp, 0, n+2), clientv3.Compare(session, "=", p.gate))
	// The operations of a Txn see what those before them did: the removal, then
	// the reads of what is ahead, then the puts.
	then := make(txns.Ops, 0, 2*n+1)
	if c.after != nil {
		p.If = append(p.If, c.after.removalCmps()...)
		then.Add(clientv3.OpDelete(c.after.key))
		p.look = c.after.wait.look(&then)
	}
	p.ahead = len(then)
	for _, e := range a.entries {
		p.If = append(p.If, reads.CreatedAt(e.key, 0))
		if c.empty {
			// etcd loads every key of the range for this, so it is only asked after a read has found the queue empty.
			from, end := e.q.Conflicting()
			p.If = append(p.If, clientv3.Compare(clientv3.CreateRevision(from).WithRange(end), "=", 0))
		}
		if permit := e.wait.permit; permit != nil {
			permit.Limit = e.q.limit.Known()
			p.If = append(p.If, e.q.limit.Is(permit.Limit))
			then.Add(clientv3.OpTxn(nil, e.q.limit.Look(0, 0, permit.Limit.Permits), nil))
		} else {
			then.Add(e.q.youngest)
		}
	}
	p.epoch = then.Add(a.q.shared.getEpoch)
	for _, e := range a.entries {
		then.Add(clientv3.OpPut(e.key, e.value, clientv3.WithLease(a.lease.ID())))
	}
	p.Then = then
	if q := a.q; !q.At.Foreign && n == 1 && q.limit == nil { // foreign prefixes may contain each other
		p.About = q.At.Entries
	}
	return p
}

// tryPut sends the put once and reads its reply.
func (a *attempt) tryPut(ctx context.Context, c condition) error {
	p, began := a.putting(c), time.Now()
	for _, e := range a.entries {
		e.say(steps.Step{Action: steps.Sends, Gate: p.gate})
	}
	r, err := a.q.shared.commits.Commit(ctx, p.Txn)
	if r.Unsent {
		return err
	}
	if r.Unanswered || time.Since(began) >= slowPut {
		a.markUnanswered(p.gate)
	}
	if r.Succeeded {
		a.saw(r.Header.Revision, began)
		return a.wasPut(ctx, p, r)
	}
	if err == nil || r.Unanswered || etcderr.Classify(err) == etcderr.Unknown {
		for _, e := range a.entries {
			e.reach(sent)
		}
	}
	if err != nil {
		a.q.ReportUnknown("enqueue", err)
		return err
	}
	return a.whyRefused(ctx, p.gate, c)
}

// wasPut reads the reply to a put that was carried out.
func (a *attempt) wasPut(ctx context.Context, p putting, r txns.Reply) (err error) {
	if permit := a.entries[0].wait.permit; permit != nil {
		return permit.wasPut(ctx, r.Inner(p.ahead))
	}
	epoch := r.Range(p.epoch).Kvs
	for i, e := range a.entries {
		ahead := r.Range(p.ahead + i)
		e.setCreated(r.Header.Revision)
		e.wait.setAhead(txns.First(ahead.Kvs), r.Header.Revision, a.requeued)
		e.wait.position = ahead.Count
		if ahead.Count > 0 {
			e.ticket.saw(places.ReadPut(e.q.Scope, ahead, epoch))
		}
		if tokenErr := e.takeToken(epoch); tokenErr != nil {
			err = tokenErr
		}
	}
	p.look.saw(r)
	return err
}

// markUnanswered records that a copy of the put, sent at gate, may be carried out yet.
func (a *attempt) markUnanswered(gate int64) {
	a.unansweredAt = gate
	a.q.shared.orphans.ScanSoon()
}

// whyRefused reads why etcd did not carry out the put. nil: an earlier copy had put the entries, and their create
// revision is known now.
func (a *attempt) whyRefused(ctx context.Context, gate int64, c condition) error {
	var ask txns.Ops
	session := ask.Add(reads.Meta(a.q.host.SessionKey(a.lease.ID())))
	first := len(ask)
	for _, e := range a.entries {
		ask.Add(reads.Meta(e.key))
	}
	mode := len(ask) // what the mode of the put needs
	var look sight
	switch q := a.q; {
	case c.after != nil:
		ask.Add(reads.Meta(c.after.key))
	case c.empty && len(a.entries) == 1:
		look = a.entries[0].ticket.look(&ask, 0)
	case q.limit != nil:
		ask.Add(clientv3.OpGet(q.At.LimitKey()))
	}
	r, err := txns.Read(ctx, a.q.host.Sender(), ask...)
	if err != nil {
		a.markUnanswered(gate) // as below: an earlier copy may have put them
		return err
	}
	own := 0
	for i, e := range a.entries {
		if kv := r.First(first + i); kv != nil {
			own++
			e.setCreated(kv.CreateRevision)
		}
	}
	if own > 0 {
		// If all copies that we know of were answered, etcd's client sent one more, and perhaps others.
		a.markUnanswered(gate)
		if own < len(a.entries) { // an earlier copy had put all
			return ErrEntryGone
		}
		return nil
	}
	switch key := r.First(session); {
	case key == nil || key.ModRevision < gate: // revoked, or deleted by hand: the session finds out which
		return backoff.Again(errKeyGone)
	case key.ModRevision > gate:
		a.lease.SawGate(key.ModRevision)
		return errGateMoved
	case c.after != nil:
		return c.after.whyKept(r.First(mode))
	case c.empty:
		look.saw(r)
		return ErrOccupied
	case a.q.limit != nil:
		if err := a.q.limit.WhyRefused(ctx, r.First(mode), a.entries[0].wait.permit.Limit.Mod); err != nil {
			return err
		}
	}
	a.markUnanswered(gate) // as above: an earlier copy had put it, and another client has deleted it
	return ErrEntryGone
}

// whyKept returns why a put did not replace the entry, which is read as own.
func (e *entry) whyKept(own *mvccpb.KeyValue) error {
	if reads.IsEntry(own, e.rev) && e.wait.ahead != nil && e.stage < held {
		return errAheadLeft
	}
	return ErrEntryGone // deleted by another client, as this one or as the one that an earlier copy had put
}
