package queue

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/internal/telemetry"
	"github.com/holdfast-go/holdfast/internal/watching"
)

// permit is how an entry of a semaphore comes to hold. The put says whether the entry is a permit or a turn. A permit
// without room is replaced by a turn. The oldest waiting turn is the front: it marks as many turns as fit, by putting
// them a second time. A marked turn is a permit.
//
//	rev 10  A puts a permit. The limit is 1
//	rev 11  B puts a permit; there is no room
//	rev 12  B's permit is replaced by a turn; B is the front
//	rev 13  C finds B waiting, and puts a turn
//	rev 15  A releases
//	rev 16  B marks its own turn, and holds; C is the front
//
// Only the entry's goroutine uses it. tests/models/semmodel has the algorithm by itself and searches it.
type permit struct {
	e    *entry
	turn bool // the entry is a turn, or is put as one

	next  next         // what it does; entry.ahead and entry.claims go with it
	limit layout.Limit // as the latest look at the front has read it
}

func (p *permit) turnKeys() (turn, claim string) {
	at := p.e.Queue.At
	turn = at.TurnKey(p.e.home)
	return turn, at.ClaimKey(turn)
}

// absent adds the comparisons of the put: the limit is as the program names it, and neither a permit nor a turn
// stands at the keys of the entry, nor a claim.
func (p *permit) absent(to []clientv3.Cmp) []clientv3.Cmp {
	q := p.e.Queue
	turn, claim := p.turnKeys()
	limit := clientv3.Compare(clientv3.Value(q.At.LimitKey()), "=", layout.Limit{Permits: q.limit}.String())
	return append(to, createdAt(turn, 0), createdAt(claim, 0), limit)
}

// putting returns the inner Txn: it puts a permit or, if a turn waits, a turn. In place of a permit without room it
// puts a turn.
func (p *permit) putting() clientv3.Op {
	e, at := p.e, p.e.Queue.At
	turns, endOfTurns := at.Turns()
	// A waiting turn was put once, so its version is 1. Without any turn etcd evaluates this to true.
	noneWaits := clientv3.Compare(clientv3.Version(turns).WithRange(endOfTurns), "!=", 1)
	if p.turn {
		noneWaits = createdAt(at.LimitKey(), 0) // false: see absent
	}
	from, end := at.Semaphore()
	// Each permit has a claim, and the limit has a key: limit+1 permits are 2*limit+3 keys. If there are more, this permit
	// does not fit.
	stand := clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithKeysOnly(),
		clientv3.WithLimit(int64(2*e.Queue.limit+3)))
	asPermit := e.puts([]clientv3.Op{stand}, e.Key, e.Claim)
	var asTurn []clientv3.Op
	if turn, claim := p.turnKeys(); !e.caller.request.Try {
		asTurn = e.puts([]clientv3.Op{turnsAhead(at, 0)}, turn, claim)
	}
	return clientv3.OpTxn([]clientv3.Cmp{noneWaits}, asPermit, asTurn)
}

// turnsAhead reads the youngest turn created before a revision; 0: of all. Turns are marked in order, so if the
// youngest does not wait, none does.
func turnsAhead(at layout.Keyspace, rev int64) clientv3.Op {
	from, end := at.Turns()
	opts := append(clientv3.WithLastCreate(), clientv3.WithRange(end), clientv3.WithKeysOnly())
	if rev != 0 {
		opts = append(opts, clientv3.WithMaxCreateRev(rev-1))
	}
	return clientv3.OpGet(from, opts...)
}

// wasPut records what the reply to the put says.
func (p *permit) wasPut(r requests.Reply) error {
	e, tries := p.e, p.e.caller.request.Try
	if !r.Succeeded && tries {
		return ErrOccupied // nothing was put: a turn waits
	}
	before, rev := r.Range(0), r.Header.Revision
	e.position = before.Count
	if r.Succeeded {
		e.position /= 2 // each permit has a claim; the limit is the odd one
		e.setCreated(rev)
	}
	switch {
	case r.Succeeded && before.More: // not all was read: with Request.Try the entry looks, otherwise it takes a turn
		e.reach(placed)
		p.next.wait = !tries
	case r.Succeeded: // it has compared the limit
		limit := layout.Limit{Permits: e.Queue.limit}
		p.decide(standingIn(e.Queue.At, before.Kvs...).forPermit(rev, e.Queue.weight, limit), rev)
	default:
		full := p.turn // its permit had no room
		p.becomeTurn(rev)
		p.noteTurnAhead(before.Kvs, rev)
		p.next.wait = p.next.wait || full
	}
	return nil
}

// becomeTurn makes the entry a turn, created at rev.
func (p *permit) becomeTurn(rev int64) {
	p.e.Key, p.e.Claim = p.turnKeys()
	p.turn = true
	p.e.setCreated(rev)
}

// noteTurnAhead records the nearest turn ahead, as a reply at a revision has shown it. Unless it waits, a look at the
// front follows.
func (p *permit) noteTurnAhead(nearest []*mvccpb.KeyValue, read int64) {
	if turn := requests.First(nearest); turn != nil && turn.Version == 1 {
		p.decide(next{behind: turn, wait: true}, read)
		return
	}
	p.next, p.e.ahead, p.e.claims = next{}, nil, nil
	p.e.reach(placed)
}

// decide records what the entry does next, by what a reply at a revision has shown.
func (p *permit) decide(n next, read int64) {
	e := p.e
	p.next, e.ahead, e.claims = n, n.behind, n.dead
	e.Queue.shared.delays.noteDead(n.dead, e.Queue.host.LockDelay, time.Now())
	e.place(read, slices.ContainsFunc(n.dead, func(c deadClaim) bool { return !c.acquitted }))
}

// takeTurn replaces a permit without room by a turn, at the back of the queue: one Txn deletes the permit and puts the
// turn. It returns the attempt to go on with, also beside an error.
func (a *attempt) takeTurn(ctx context.Context) (*attempt, error) {
	permit := a.entries[0]
	next := newAttempt([]*caller{permit.caller}, a.lease)
	turn := next.entries[0]
	turn.permit.turn, next.after = true, permit
	err := next.put(ctx)
	if err != nil {
		err = next.putAgain(ctx, err)
	}
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

// await waits until the entry holds. It returns a *holdfast.LimitError if its weight is above a lowered limit, and
// ErrOccupied for a permit without room.
func (p *permit) await(ctx context.Context) error {
	e := p.e
	for !p.next.hold {
		var err error
		switch {
		case ctx.Err() != nil:
			err = retry.ContextErr(ctx)
		case p.next.tooHeavy:
			err = e.Queue.limitErr(p.limit.Permits, e.Queue.weight)
		case len(p.next.batch) > 0:
			err = e.Retry(ctx, p.admit)
		case len(e.claims) > 0:
			err = e.of.passClaims(ctx)
		case !p.next.wait: // not known, or the claims are deleted
			err = e.Retry(ctx, p.look)
		case !p.turn:
			err = ErrOccupied
		default:
			err = p.watch(ctx)
			telemetry.Woken(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// admit marks the turns of the batch, and their claims, each if it stands as it was read.
func (p *permit) admit(ctx context.Context) error {
	e, at, sent := p.e, p.e.Queue.At, p.e.Queue.host.Clock()
	// The Txn compares the limit, and not the front. While a turn waits, none younger is marked, and no permit is put. So
	// a copy of this does no harm, whenever it arrives.
	t := requests.Txn{If: []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(at.LimitKey()), "=", p.limit.Mod)}}
	for _, kv := range p.next.batch {
		key := string(kv.Key)
		// A put with the value or lease of a missing key makes etcd refuse the whole Txn, so each key is compared first.
		unchanged := func(key string) clientv3.Op {
			return clientv3.OpPut(key, "", clientv3.WithIgnoreValue(), clientv3.WithIgnoreLease())
		}
		mark, claim := unchanged(key), at.ClaimKey(key)
		// A look reads no value of a turn ahead of the own one. That of another client is not ours.
		if v, ok := layout.DecodeValue(kv.Value); ok {
			v.Held = time.Now()
			mark = PutValue(key, v.Encode())
		}
		t.Then = append(t.Then, clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", kv.CreateRevision)},
			[]clientv3.Op{mark, clientv3.OpTxn(
				[]clientv3.Cmp{createdAt(claim, kv.CreateRevision)}, []clientv3.Op{unchanged(claim)}, nil,
			)}, nil))
	}
	r, err := e.Commit(ctx, t)
	if err != nil {
		return err
	}
	own := slices.IndexFunc(p.next.batch, e.Is)
	p.next = next{}
	if r.Succeeded && own >= 0 && r.Inner(own).Succeeded {
		p.noteMarked(r.Header.Revision, r.Header.Revision, sent)
	}
	return nil
}

// noteMarked records the turn as marked since mod, by the reply at a revision to a request sent then.
func (p *permit) noteMarked(mod, read int64, sent time.Duration) {
	p.e.Modified, p.next = mod, next{hold: true}
	p.e.ahead, p.e.claims = nil, nil
	p.e.of.revision, p.e.of.readSent = read, sent
}

// look asks etcd what the entry is to do. A turn behind another reads the nearest ahead.
func (p *permit) look(ctx context.Context) error {
	if p.next.hold {
		return p.ask(ctx, nil, func(requests.Reply) error { return nil })
	}
	if p.e.ahead == nil {
		return p.lookAtAll(ctx)
	}
	return p.ask(ctx, requests.Ops{turnsAhead(p.e.Queue.At, p.e.Created)}, func(r requests.Reply) error {
		p.noteTurnAhead(r.Range(0).Kvs, r.Header.Revision)
		return nil
	})
}

// lookAtAll is the look of the front: it reads everything put before it, and as many turns behind it as one Txn can
// mark. A turn behind does the same while its watch is silent: if the front hangs, it holds up no one.
func (p *permit) lookAtAll(ctx context.Context) error {
	e, q := p.e, p.e.Queue
	from, end := q.At.Semaphore()
	turns, endOfTurns := q.At.Turns()
	all := requests.Ops{
		// A younger claim would look dead, for its turn may not be among those read.
		clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithMaxCreateRev(e.Created-1)),
		clientv3.OpGet(turns, clientv3.WithRange(endOfTurns), clientv3.WithMinCreateRev(e.Created),
			clientv3.WithLimit(maxBatch), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)),
		clientv3.OpGet(q.At.LimitKey()),
	}
	unsettled := e.examine(&all, (requests.MaxOps-len(all))/2)
	return p.ask(ctx, all, func(r requests.Reply) (err error) {
		if r.First(2) == nil { // deleted by hand
			return q.changeLimit(ctx, nil, q.limit)
		}
		if p.limit, err = q.limitIn(r.First(2)); err != nil {
			return err
		}
		stand := standingIn(q.At, append(r.Range(0).Kvs, r.Range(1).Kvs...)...)
		if p.turn {
			p.decide(stand.forTurn(e.Created, q.weight, p.limit), r.Header.Revision)
		} else {
			p.decide(stand.forPermit(e.Created, q.weight, p.limit), r.Header.Revision)
		}
		e.noteExamined(r, 3, unsettled, time.Now())
		return nil
	})
}

// ask sends a flat Txn, since a Txn in it would make it a write. If the own entry stands as it was known, note takes
// the replies. If it was marked meanwhile, it holds.
func (p *permit) ask(ctx context.Context, then requests.Ops, note func(requests.Reply) error) error {
	e, sent := p.e, p.e.Queue.host.Clock()
	r, err := requests.Txn{
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(e.Key), "=", e.modRevision())},
		Then: then, Else: []clientv3.Op{clientv3.OpGet(e.Key)}, // of a key alone, etcd 3.7 does not tell the lease
	}.Ask(ctx, e.Queue.host.Sender, requests.Read)
	if err != nil {
		return err
	}
	if r.Succeeded {
		e.of.revision, e.of.readSent = r.Header.Revision, sent
		err = note(r)
		e.tell(ctx)
		return err
	}
	// Version 2 on the own lease: it was put, marked, and nothing else. An administrator's notice is a put, too.
	own := r.First(0)
	if !p.turn || !e.Is(own) || own.Version != 2 || own.Lease != int64(e.Lease.ID()) {
		return ErrEntryGone
	}
	p.noteMarked(own.ModRevision, r.Header.Revision, sent)
	return nil
}

// hangs is how long the watch of a turn may be silent before this turn looks after the front.
const hangs = time.Second

// watch waits until the turn ahead is marked or gone or, at the front, until a permit goes or the limit is changed.
func (p *permit) watch(ctx context.Context) error {
	e, q := p.e, p.e.Queue
	c := watching.Change{Env: q.host.Env, Streams: &q.shared.streams, Look: p.look, Hear: p.hear}
	if ahead := e.ahead; ahead == nil {
		from, end := q.At.Semaphore()
		c.Key, c.Opts = from, []clientv3.OpOption{clientv3.WithRange(end)}
		c.Over = func() bool { return !p.next.wait }
	} else {
		c.Key = string(ahead.Key)
		isAhead := func() bool { return e.ahead != nil && e.ahead.CreateRevision == ahead.CreateRevision }
		c.Over = func() bool { return !p.next.wait || !isAhead() }
		// All turns together look a few times a second, in case the front hangs.
		c.Again, c.Recheck = p.lookAtAll, max(hangs, min(time.Duration(e.position)*hangs/4, watching.RecheckAfter))
	}
	return c.Await(ctx)
}

// hear looks when the watch tells what may end the wait: something was deleted, or the turn ahead was marked, the own
// turn, by another session, or the limit was changed.
func (p *permit) hear(ctx context.Context, events []*clientv3.Event) error {
	for _, event := range events {
		switch key := string(event.Kv.Key); {
		case event.Type == mvccpb.DELETE, key == p.e.Key, key == p.e.Queue.At.LimitKey():
		case p.e.ahead != nil:
			p.e.ahead = nil // marked, and the own turn with it, or the own turn is the front
		default:
			continue
		}
		return p.look(ctx)
	}
	return nil
}
