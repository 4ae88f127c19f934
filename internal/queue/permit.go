package queue

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/ahead"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/permits"
	"github.com/holdfast-go/holdfast/internal/requests"
)

// permit is how an entry of a semaphore comes to hold, by what package permits decides. The put says whether the entry
// is a permit or a turn. A turn replaces a permit that does not fit. Only the entry's goroutine uses it.
type permit struct {
	w    *wait
	turn bool  // the entry is a turn, or is put as one
	mod  int64 // of a turn: the mod revision with its mark; 0: it has none

	next  permits.Next // what it does; wait.ahead and wait.claims go with it
	limit layout.Limit // as the latest look at the front has read it
}

func (p *permit) turnKeys() (turn, claim string) {
	at := p.w.e.q.At
	turn = at.TurnKey(p.w.e.home)
	return turn, at.ClaimKey(turn)
}

// absent adds the comparisons of the put: the limit is the one that the program names, and neither a permit nor a turn
// stands at the keys of the entry, nor a claim.
func (p *permit) absent(to []clientv3.Cmp) []clientv3.Cmp {
	q := p.w.e.q
	turn, claim := p.turnKeys()
	limit := clientv3.Compare(clientv3.Value(q.At.LimitKey()), "=", layout.Limit{Permits: q.limit}.String())
	return append(to, ahead.CreatedAt(turn, 0), ahead.CreatedAt(claim, 0), limit)
}

// putting is the Txn in the Txn that puts a permit or, if a turn waits, a turn. It puts a turn at once in place of a
// permit that did not fit, and while turns of the session wait: to compare that none does, etcd goes through all turns.
func (p *permit) putting(claims clientv3.LeaseID) clientv3.Op {
	e, at := p.w.e, p.w.e.q.At
	turns, endOfTurns := at.Turns()
	// A turn that waits was put once, so its version is 1. Of no turn at all, etcd says that this is true.
	noneWaits := clientv3.Compare(clientv3.Version(turns).WithRange(endOfTurns), "!=", 1)
	tries := e.ticket.request.Try // then there is no turn
	if p.turn || !tries && e.q.shared.semaphores.wait(at, 0) > 0 {
		noneWaits = ahead.CreatedAt(at.LimitKey(), 0) // false: see absent
	}
	from, end := at.Semaphore()
	// Each permit has a claim. With more keys than those of as many permits as the limit, and of one more, this one does
	// not fit.
	stand := clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithKeysOnly(),
		clientv3.WithLimit(int64(2*e.q.limit+3)))
	asPermit := e.puts([]clientv3.Op{stand}, e.key, e.claim, claims)
	var asTurn []clientv3.Op
	if turn, claim := p.turnKeys(); !tries {
		asTurn = e.puts([]clientv3.Op{turnsAhead(at, 0)}, turn, claim, claims)
	}
	return clientv3.OpTxn([]clientv3.Cmp{noneWaits}, asPermit, asTurn)
}

// turnsAhead reads the youngest turn put before one of that create revision; 0: of all. If that one does not wait, none
// of them does.
func turnsAhead(at layout.Queue, rev int64) clientv3.Op {
	from, end := at.Turns()
	opts := append(clientv3.WithLastCreate(), clientv3.WithRange(end), clientv3.WithKeysOnly())
	if rev != 0 {
		opts = append(opts, clientv3.WithMaxCreateRev(rev-1))
	}
	return clientv3.OpGet(from, opts...)
}

// wasPut reads the reply to the put.
func (p *permit) wasPut(r requests.Reply) error {
	e, tries := p.w.e, p.w.e.ticket.request.Try
	if !r.Succeeded && tries {
		return ErrOccupied // nothing was put: a turn waits
	}
	before, rev := r.Range(0), r.Header.Revision
	p.w.position = before.Count
	if r.Succeeded && before.More { // not all was read: with Request.Try it looks, and others take a turn
		e.setCreated(rev)
		e.reach(placed)
		p.next.Wait = !tries
		return nil
	}
	if r.Succeeded { // it has compared the limit
		e.setCreated(rev)
		limit := layout.Limit{Permits: e.q.limit}
		p.decide(permits.Read(e.q.At, before.Kvs...).Permit(rev, e.q.weight, limit), rev)
		return nil
	}
	full := p.turn // its permit did not fit
	p.becomeTurn(rev)
	p.sawAhead(before.Kvs, rev)
	p.next.Wait = p.next.Wait || full
	return nil
}

// becomeTurn records that the entry is a turn, created at rev.
func (p *permit) becomeTurn(rev int64) {
	e := p.w.e
	turn, claim := p.turnKeys()
	e.mu.Lock()
	e.key, e.claim = turn, claim
	e.mu.Unlock()
	p.turn = true
	e.setCreated(rev)
}

// sawAhead records the nearest turn ahead, as a reply at a revision has shown it. Without one that waits, a look at the
// front follows.
func (p *permit) sawAhead(nearest []*mvccpb.KeyValue, read int64) {
	if ahead := requests.First(nearest); ahead != nil && ahead.Version == 1 {
		p.decide(permits.Next{Behind: ahead, Wait: true}, read)
		return
	}
	p.next, p.w.ahead, p.w.claims = permits.Next{}, nil, nil
	p.w.e.reach(placed)
}

// decide records what the entry does next, by what a reply at a revision has shown.
func (p *permit) decide(next permits.Next, read int64) {
	e := p.w.e
	p.next, p.w.ahead, p.w.claims = next, next.Behind, next.Dead
	e.q.shared.sights.noteDead(next.Dead, time.Now())
	e.place(read, slices.ContainsFunc(next.Dead, func(c ahead.Claim) bool { return !c.Acquitted }))
}

// takeTurn replaces a permit that does not fit by a turn, at the back of the queue: one Txn deletes the permit and puts
// the turn. It returns the attempt to go on with, also beside an error.
func (a *attempt) takeTurn(ctx context.Context) (*attempt, error) {
	permit := a.entries[0]
	next := newAttempt([]*ticket{permit.ticket}, a.lease)
	turn := next.entries[0]
	turn.wait.permit.turn, next.after = true, permit
	err := next.put(ctx)
	if turn.stage < created {
		turn.finish() // its put may be carried out yet
		return a, err
	}
	permit.finish()
	return next, err
}

// found returns what stands of the entry, by the replies to reads of its permit, turn and claims.
func (p *permit) found(r requests.Reply, from int) (own, claim *mvccpb.KeyValue) {
	turn, of := r.First(from+2), r.First(from+3)
	if turn == nil && of == nil {
		return r.First(from), r.First(from + 1)
	}
	p.becomeTurn(cmp.Or(turn, of).CreateRevision)
	return turn, of
}

// admit marks the turns of the batch, and their claims, each if it stands as it was read. It compares the limit and
// nothing else: while a turn waits, none younger is marked, and no permit is put. So a copy of this does no harm,
// whenever it arrives.
func (p *permit) admit(ctx context.Context) error {
	e, at, sent := p.w.e, p.w.e.q.At, time.Now()
	t := requests.Txn{If: []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(at.LimitKey()), "=", p.limit.Mod)}}
	own := -1
	for i, kv := range p.next.Batch {
		if kv.CreateRevision == e.rev {
			own = i
		}
		key, value := string(kv.Key), string(kv.Value)
		if v, ok := layout.DecodeValue(kv.Value); ok {
			v.Held = sent
			value = v.Encode()
		}
		claim := at.ClaimKey(key)
		// etcd refuses the whole Txn if it is to keep the lease of a key that does not exist.
		markClaim := clientv3.OpPut(claim, "", clientv3.WithIgnoreValue(), clientv3.WithIgnoreLease())
		t.Then = append(t.Then, clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", kv.CreateRevision)},
			[]clientv3.Op{PutValue(key, value), clientv3.OpTxn(
				[]clientv3.Cmp{ahead.CreatedAt(claim, kv.CreateRevision)}, []clientv3.Op{markClaim}, nil,
			)}, nil))
	}
	r, err := e.q.shared.commits.Commit(ctx, t)
	if err != nil {
		return err
	}
	p.next = permits.Next{}
	if r.Succeeded && own >= 0 && r.Inner(own).Succeeded {
		p.admitted(r.Header.Revision, r.Header.Revision, sent)
	}
	return nil
}

// admitted records that the turn is marked since mod, as the reply to a request at a revision says that was sent then.
func (p *permit) admitted(mod, read int64, sent time.Time) {
	p.mod, p.next = mod, permits.Next{Hold: true}
	p.w.ahead, p.w.claims = nil, nil
	p.w.e.of.revision, p.w.e.of.lookSent = read, sent
}
