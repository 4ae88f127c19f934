package queue

import (
	"cmp"
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/permits"
	"github.com/holdfast-go/holdfast/internal/reads"
	"github.com/holdfast-go/holdfast/internal/sending"
	"github.com/holdfast-go/holdfast/internal/steps"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// permit is how an entry of a semaphore comes to hold, by what package permits decides. The entry is a permit first. If
// that does not fit, it is replaced by a turn, and key, claim and create revision of the entry are those of the turn
// from then on. The entry's goroutine alone uses it.
type permit struct {
	w     *wait
	tries bool // of TryAcquire: there is no turn
	turn  bool // the entry is a turn
	holds bool
	mod   int64 // of a turn: the mod revision with its mark; 0: it has none

	counted bool // among the turns of the session that wait

	judged bool // next, or wait.ahead, says what to do
	next   permits.Next
	limit  layout.Limit // as the latest look at the front has read it
	looked time.Time    // when that, or the put, was answered
}

// noneWaits is true in a Txn while no turn waits, and none stands unmarked: what was put once has version 1.
func noneWaits(at layout.Queue) clientv3.Cmp {
	from, end := at.Turns()
	return clientv3.Compare(clientv3.Version(from).WithRange(end), "!=", 1)
}

// absent adds the comparisons of the put: neither a permit nor a turn stands at the keys of the entry, nor a claim.
func (p *permit) absent(to []clientv3.Cmp) []clientv3.Cmp {
	turn, claim := p.turnKeys()
	return append(to, reads.CreatedAt(turn, 0), reads.CreatedAt(claim, 0), p.w.e.q.limit.Is())
}

func (p *permit) turnKeys() (turn, claim string) {
	at := p.w.e.q.At
	turn = at.TurnKey(p.w.e.home)
	return turn, at.ClaimKey(turn)
}

// putting is the Txn in the Txn that puts a permit, or a turn if one waits. A session of which turns wait does not ask
// for that: etcd goes through all turns for it.
func (p *permit) putting(claims clientv3.LeaseID) clientv3.Op {
	e, at := p.w.e, p.w.e.q.At
	none := noneWaits(at)
	if !p.tries && e.q.shared.anyWaits(at) {
		none = reads.CreatedAt(at.LimitKey(), 0) // it stands: see absent
	}
	from, end := at.Semaphore()
	// Each permit has a claim. With more keys than the limit, its permits and one more have, this one does not fit.
	stand := clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithKeysOnly(),
		clientv3.WithLimit(int64(2*e.q.limit.Named+3)))
	asPermit := e.puts([]clientv3.Op{stand}, e.key, e.claim, claims)
	var asTurn []clientv3.Op
	if !p.tries {
		asTurn = p.puttingTurn(claims)
	}
	return clientv3.OpTxn([]clientv3.Cmp{none}, asPermit, asTurn)
}

// puttingTurn reads the youngest turn and puts another one.
func (p *permit) puttingTurn(claims clientv3.LeaseID) []clientv3.Op {
	turn, claim := p.turnKeys()
	return p.w.e.puts([]clientv3.Op{turnsAhead(p.w.e.q.At, 0)}, turn, claim, claims)
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
func (p *permit) wasPut(r txns.Reply) error {
	if !r.Succeeded && p.tries {
		return ErrOccupied // nothing was put: a turn waits
	}
	e, before := p.w.e, r.Range(0)
	if p.looked = time.Now(); r.Succeeded {
		e.setCreated(r.Header.Revision)
		left, _ := permits.Read(e.q.At, before.Kvs...).Room(e.q.limit.Named, e.rev)
		p.holds, p.judged = !before.More && left >= e.q.weight, !p.tries
		e.reach(placed)
		e.say(steps.Step{Action: steps.Judged, Read: e.rev})
	} else {
		p.becomeTurn(r.Header.Revision)
		p.sawAhead(before.Kvs, r.Header.Revision)
	}
	p.w.position = before.Count
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
	p.w.ahead, p.next, p.w.claims = txns.First(nearest), permits.Next{}, nil
	if p.w.ahead != nil && p.w.ahead.Version != 1 {
		p.w.ahead = nil
	}
	p.judged = p.w.ahead != nil
	p.w.e.reach(placed)
	if p.judged {
		p.w.e.say(steps.Step{Action: steps.Judged, Read: read})
	}
}

// convert replaces a permit that does not fit by a turn, at the back of the queue.
func (p *permit) convert(ctx context.Context) error {
	e, a := p.w.e, p.w.e.of
	claims, err := a.lease.AwaitClaims(ctx)
	if err != nil {
		return err
	}
	turn, claim := p.turnKeys()
	t := txns.Txn{
		If: []clientv3.Cmp{ // a permit that an administrator has moved is not this session's to delete
			clientv3.Compare(clientv3.ModRevision(e.key), "=", e.rev),
			reads.CreatedAt(turn, 0), reads.CreatedAt(claim, 0),
		},
		Then: append(e.deletions(nil), p.puttingTurn(claims)...),
		Else: []clientv3.Op{reads.Meta(turn)},
	}
	r, err := e.q.shared.commits.Commit(ctx, t)
	if r.Unanswered || etcderr.Classify(err) == etcderr.Unknown {
		a.markUnanswered(a.lease.Gate()) // the sweeper looks for both
	}
	switch {
	case etcderr.Classify(err) == etcderr.LeaseGone && e.q.host.LeaseGone(ctx, a.lease, claims, err) == nil:
		return backoff.Again(err)
	case err != nil:
		return err
	case r.Succeeded:
		p.becomeTurn(r.Header.Revision)
		p.sawAhead(r.Range(2).Kvs, r.Header.Revision)
		p.judged = true // it did not fit
		return nil
	case r.First(0) != nil: // by an earlier copy
		p.becomeTurn(r.First(0).CreateRevision)
		p.judged = false
		return nil
	default:
		return ErrEntryGone
	}
}

// found returns what stands of the entry, by the replies to reads of its permit, turn and claims.
func (p *permit) found(r txns.Reply, from int) (own, claim *mvccpb.KeyValue) {
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
	t := txns.Txn{If: []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(at.LimitKey()), "=", p.limit.Mod)}}
	own := -1
	for i, kv := range p.next.Batch {
		if kv.CreateRevision == e.rev {
			own = i
		}
		claim := at.ClaimKey(string(kv.Key))
		// etcd refuses the whole Txn if it is to keep the lease or the value of a key that does not exist.
		markClaim := clientv3.OpPut(claim, "", clientv3.WithIgnoreValue(), clientv3.WithIgnoreLease())
		t.Then = append(t.Then, clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.CreateRevision)},
			[]clientv3.Op{mark(kv, sent), clientv3.OpTxn(
				[]clientv3.Cmp{reads.CreatedAt(claim, kv.CreateRevision)}, []clientv3.Op{markClaim}, nil,
			)}, nil))
	}
	r, err := e.q.shared.commits.Commit(ctx, t)
	if err != nil {
		return err
	}
	p.next, p.judged = permits.Next{}, false
	if r.Succeeded && own >= 0 && r.Inner(own).Succeeded {
		p.admitted(r.Header.Revision, r.Header.Revision, sent)
	}
	return nil
}

// mark puts a turn a second time. Its value says since when it is held, if that was read.
func mark(kv *mvccpb.KeyValue, held time.Time) clientv3.Op {
	v, ok := layout.DecodeValue(kv.Value)
	if !ok {
		return clientv3.OpPut(string(kv.Key), "", clientv3.WithIgnoreValue(), clientv3.WithIgnoreLease())
	}
	v.Held = held
	return PutValue(string(kv.Key), v.Encode())
}

// admitted records that the turn is marked since mod, as the reply to a request at a revision says that was sent then.
func (p *permit) admitted(mod, read int64, sent time.Time) {
	p.mod, p.holds = mod, true
	p.w.ahead, p.w.claims = nil, nil
	p.w.e.of.saw(read, sent)
}

// turnsWaiting counts the turns of a session that wait, by semaphore: while there are any, it puts no permits.
type turnsWaiting struct {
	mu sync.Mutex // protects of
	of map[string]int
}

func (s *shared) beginWait(p *permit) { s.countWait(p, true) }
func (s *shared) endWait(p *permit)   { s.countWait(p, false) }

func (s *shared) countWait(p *permit, waits bool) {
	if p.counted == waits {
		return
	}
	p.counted = waits
	s.semaphores.turns.mu.Lock()
	defer s.semaphores.turns.mu.Unlock()
	at := p.w.e.q.At.Entries
	if waits {
		s.semaphores.turns.of[at]++
	} else if s.semaphores.turns.of[at]--; s.semaphores.turns.of[at] == 0 {
		delete(s.semaphores.turns.of, at)
	}
}

func (s *shared) anyWaits(at layout.Queue) bool {
	s.semaphores.turns.mu.Lock()
	defer s.semaphores.turns.mu.Unlock()
	return s.semaphores.turns.of[at.Entries] > 0
}

// enter waits until few puts of permits are under way in the session. A thousand that are put at once read each other,
// and most do not fit.
func (s *shared) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s.semaphores.puts <- struct{}{}:
		return func() { <-s.semaphores.puts }, nil
	case <-ctx.Done():
		return nil, backoff.ContextErr(ctx)
	}
}

// examine reads what ends the delays of dead claims: their values, and whether the session keys of their holders stand.
func (w *wait) examine(ctx context.Context) error {
	sights := &w.e.q.shared.sights
	for from := 0; from < len(w.claims); from += txns.MaxOps / 2 {
		var ask txns.Ops
		batch := w.claims[from:min(from+txns.MaxOps/2, len(w.claims))]
		for _, c := range batch {
			if sights.isOpen(c) {
				ask.Add(clientv3.OpGet(c.Key), clientv3.OpGet(w.sessionKeyOf(c), clientv3.WithCountOnly()))
			}
		}
		if len(ask) == 0 {
			continue
		}
		r, err := txns.Txn{Then: ask}.Ask(ctx, w.e.q.host.Sender(), sending.Read)
		if err != nil {
			return err
		}
		for i := 0; i < len(ask); i += 2 {
			if claim := r.First(i); claim != nil {
				sights.noteExamined(claim, r.Range(i+1).Count == 0, time.Now())
			}
		}
	}
	return nil
}
