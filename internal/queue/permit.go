package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// A permit of a semaphore is an entry with a weight, which stands in its key. It may be held once the weights of all
// entries ahead and its own fit into the limit. Nothing joins ahead of an entry, so at one limit this stays true:
// position decides, and no write is needed for safety. internal/semmodel has the algorithm by itself, and searches it.
//
// One waiter, as a rule, is the first one. It watches all permits ahead and the limit, and asks etcd once its weight
// fits: see permitwait.go. The others are far: each watches the entry ahead of it, until that one puts a mark.
//
// A permit ahead may go because its lease was revoked, while its holder does not know yet. The first waiter judges
// each one that goes. What has gone before it was first, the entry ahead of it has judged: its mark says up to which
// revision. An entry ahead that goes without a mark leaves that unknown, and then the lock delay begins.

// permit is what an entry of a semaphore has beyond other entries. Its goroutine alone uses it.
type permit struct {
	weight int
	limit  layout.Limit // as it was read last
	mod    int64        // mod revision of the entry with its mark; 0: it has none

	far bool // waits behind an entry that waits, too; otherwise it is the first waiter

	// Of the first waiter.
	base  int64              // each revoked permit that went before this revision was waited for; 0: that is not known
	known bool               // ahead is what stands ahead; otherwise what stood at base is still to be read
	ahead []*mvccpb.KeyValue // as of heard
	sum   int                // of their weights
	heard int64              // it knows of each deletion ahead up to this revision
	gone  []goneAhead        // what has gone since base and is not judged yet
	due   int64              // what has gone before this revision is waited for when the lock delay is over
}

// goneAhead is a permit ahead that has gone.
type goneAhead struct {
	key, session string // keys of the entry and of its session
	at           int64  // the revision of the deletion; 0: it is not known
}

func weights(kvs []*mvccpb.KeyValue) (sum int) {
	for _, kv := range kvs {
		sum += layout.WeightOf(string(kv.Key))
	}
	return sum
}

// permitsAhead reads the permits created at maxCreate or before, as they stood at a revision, oldest first. 0 means
// any, and now.
func (q *Queue) permitsAhead(maxCreate, at int64, opts ...clientv3.OpOption) clientv3.Op {
	oldest := clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)
	return q.ahead(maxCreate, at, append(opts, oldest)...)
}

// lookAtPermits reads what decides about a permit: the oldest ahead, the youngest with its value, and the limit.
// permitsIn reads the replies. Of the oldest it reads one more than may have been held at a time, by the limit that is
// known: those behind must be waiting.
func (q *Queue) lookAtPermits(maxCreate, at int64, known layout.Limit) []clientv3.Op {
	from, end := q.conflicting()
	opts := []clientv3.OpOption{
		clientv3.WithRange(end), clientv3.WithLimit(1),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend),
	}
	if maxCreate > 0 {
		opts = append(opts, clientv3.WithMaxCreateRev(maxCreate))
	}
	if at > 0 {
		opts = append(opts, clientv3.WithRev(at))
	}
	return []clientv3.Op{
		q.permitsAhead(maxCreate, at, clientv3.WithLimit(int64(known.High)+1)),
		clientv3.OpGet(from, opts...), clientv3.OpGet(q.at.LimitKey()),
	}
}

// permitsSeen is what lookAtPermits has read.
type permitsSeen struct {
	ahead    []*mvccpb.KeyValue
	count    int64 // of all entries, at whatever revision and age
	youngest *mvccpb.KeyValue
	limit    layout.Limit
}

// errHigherLimit: more permits may be held than were read.
var errHigherLimit = errors.New("the limit was higher than it was known to be")

// permitsIn reads the replies to lookAtPermits, the first of which is response i. If it returns errHigherLimit, they
// must be read again.
func (q *Queue) permitsIn(ctx context.Context, r txns.Reply, i int, known layout.Limit) (seen permitsSeen, err error) {
	seen = permitsSeen{ahead: r.Range(i).Kvs, count: r.Range(i + 1).Count, youngest: r.First(i + 1)}
	seen.limit, err = q.sawLimit(ctx, r.First(i+2))
	if err == nil && seen.limit.High > known.High {
		err = errHigherLimit
	}
	return seen, err
}

// mayHold reports whether the youngest permit that was seen may hold without a mark, because it was free when it was
// put. Otherwise it waits.
func (s permitsSeen) mayHold() bool { return weights(s.ahead) <= s.limit.High }

// placePermit records the place of a permit whose entry was put at e.rev, by what was seen to stand ahead of it at a
// revision. With delay, what went before is not known.
func (e *entry) placePermit(seen permitsSeen, at int64, delay bool) {
	p := e.permit
	p.limit = seen.limit
	ahead := seen.youngest
	if weights(seen.ahead)+p.weight <= p.limit.Permits {
		ahead = nil
	}
	e.setPlace(e.rev, ahead, at, delay)
	if p.far = !seen.mayHold() && layout.MarkIn(ahead) == 0; p.far {
		return
	}
	e.isFirst(at, delay)
	p.known, p.ahead, p.sum = true, seen.ahead, weights(seen.ahead)
}

// isFirst makes the entry the first waiter, from a revision on. With delay, what went before is not known, and the lock
// delay has begun. A mark may be older than the entry. But only from the revision of the entry on does a read show all
// that are ahead of it, and what went before is none of its concern.
func (e *entry) isFirst(from int64, delay bool) {
	p := e.permit
	from = max(from, e.rev)
	*p = permit{weight: p.weight, limit: p.limit, base: from, heard: from}
	if delay {
		p.base, p.due = 0, from
	}
}

// putPermit reads the replies to the reads of the put.
func (e *entry) putPermit(ctx context.Context, resp txns.Reply) error {
	e.setCreated(resp.Header.Revision)
	e.sawAhead(resp.Range(1), nil)
	seen, err := e.q.permitsIn(ctx, resp, 0, e.permit.limit)
	if err != nil {
		return err
	}
	e.position = seen.count
	e.placePermit(seen, e.rev, e.requeued)
	return nil
}

// locatePermit is locate for a permit.
func (e *entry) locatePermit(ctx context.Context) error {
	at, compacted, known := e.rev, false, e.q.knownLimit()
	resp, err := e.q.read(ctx, e.q.lookAtPermits(e.rev-1, e.rev, known)...)
	if errors.Is(err, rpctypes.ErrCompacted) {
		compacted = true
		if resp, err = e.q.read(ctx, e.q.lookAtPermits(e.rev-1, 0, known)...); err == nil {
			at = resp.Header.Revision
		}
	}
	if err != nil {
		return err
	}
	seen, err := e.q.permitsIn(ctx, resp, 0, known)
	if errors.Is(err, errHigherLimit) {
		return e.locatePermit(ctx)
	}
	if err != nil {
		return err
	}
	e.placePermit(seen, at, e.requeued || compacted)
	e.revision = resp.Header.Revision // at which the limit was read
	return nil
}

// tryPermit is TryAcquire for a semaphore. If another entry was put between the read and its own, it removes its own
// again.
func (q *Queue) tryPermit(ctx context.Context, r Request) (*Hold, error) {
	if err := q.checkRoom(ctx); err != nil {
		return nil, err
	}
	t := q.newTicket(r)
	ln := q.shared.join(t, false) // of its own
	return single(acquire(ctx, []turn{{ln, t}}, <-t.turn, condition{now: true}))
}

// checkRoom returns ErrOccupied, with the place, if that many permits are not free.
func (q *Queue) checkRoom(ctx context.Context) error {
	open, cancel := withSession(ctx, q.host)
	defer cancel()
	known := q.knownLimit()
	resp, err := q.read(open, append(q.lookAtPermits(0, 0, known), q.lookAhead(0)...)...)
	if err != nil {
		return q.closedErr(ctx, err)
	}
	seen, err := q.permitsIn(open, resp, 0, known)
	switch {
	case errors.Is(err, errHigherLimit):
		return q.checkRoom(ctx)
	case err != nil:
		return q.closedErr(ctx, err)
	case seen.limit.Permits != q.sem.permits:
		return q.otherLimit(seen.limit)
	case weights(seen.ahead)+q.weight > seen.limit.Permits:
		return &PlacedError{q.aheadIn(resp, 3, 0).place(q), ErrOccupied}
	default:
		return nil
	}
}

// served is the revision up to which each revoked permit ahead was waited for; 0 if that is not known.
func (e *entry) served() int64 {
	p := e.permit
	if time.Now().Before(e.delayUntil) {
		return p.base
	}
	base := max(p.base, p.due)
	if len(p.gone) == 0 {
		base = max(base, p.heard)
	}
	return base
}

// sessionsStand is true in a Txn while the sessions exist whose permits have gone. It returns false if there are too
// many.
func (p *permit) sessionsStand() (cmps []clientv3.Cmp, ok bool) {
	var sessions []string
	for _, g := range p.gone {
		sessions = append(sessions, g.session)
	}
	slices.Sort(sessions)
	sessions = slices.Compact(sessions)
	for _, key := range sessions {
		cmps = append(cmps, clientv3.Compare(clientv3.CreateRevision(key), ">", 0))
	}
	return cmps, len(sessions) <= maxJudged
}

// unmarked is true in a Txn while the entry stands as it was put.
func (e *entry) unmarked() clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(e.key), "=", e.rev)
}

// putMark puts the entry with a mark.
func (e *entry) putMark(mark int64, held time.Time) clientv3.Op {
	v, _ := layout.DecodeValue([]byte(e.value))
	v.Mark, v.Held = mark, held
	return e.putValue(v.Encode())
}

// markToLeave puts the mark of a first waiter that gives up: the entry behind it goes on from there. One that is far,
// or that does not know up to which revision it has judged, leaves without a mark.
func (e *entry) markToLeave(ctx context.Context) error {
	p := e.permit
	if e.stage != placed || e.ahead == nil || p.far || p.mod != 0 {
		return nil
	}
	t := txns.Txn{If: []clientv3.Cmp{e.unmarked()}}
	if base := e.served(); base != 0 {
		t.Else = []clientv3.Op{clientv3.OpTxn(t.If, []clientv3.Op{e.putMark(base, time.Time{})}, nil)}
	}
	stand, few := p.sessionsStand()
	if few && !time.Now().Before(e.delayUntil) && (p.base != 0 || p.due != 0) {
		t.If = append(t.If, stand...)
		t.Then = []clientv3.Op{e.putMark(p.heard, time.Time{})}
	} else {
		t.Then, t.Else = t.Else, nil
	}
	if len(t.Then) == 0 {
		return nil
	}
	r, err := e.commit(ctx, t)
	if err == nil {
		p.mod = r.Header.Revision // or the entry is gone, or was changed: it is removed next
	}
	return err
}
