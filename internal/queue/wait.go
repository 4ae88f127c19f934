package queue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/internal/telemetry"
	"github.com/holdfast-go/holdfast/internal/watching"
	"github.com/holdfast-go/holdfast/view"
)

// wait is what stands ahead of an entry, as the latest look, or the put, has shown. Nothing can join a queue ahead of
// an entry, so what is free ahead of it stays free.
type wait struct {
	ahead  *mvccpb.KeyValue // the nearest conflicting entry ahead; nil: there is none
	claims []deadClaim      // the dead claims between ahead and the entry, in the order of their creation
	more   bool             // there are more dead claims

	seen int // the number of the latest look at this queue; 0: there was none, or it is a permit's

	position int64   // number of entries ahead when the entry was put
	permit   *permit // of a semaphore; otherwise nil
}

// isFree reports whether nothing stands ahead.
func (e *entry) isFree() bool {
	if e.permit != nil {
		return e.permit.next.hold
	}
	return e.stage >= placed && e.ahead == nil && len(e.claims) == 0 && !e.more
}

// awaitNoEntryAhead waits until no entry is ahead. Dead claims may be.
//
// It watches the entry ahead and no other. If the own entry was deleted by hand, or written to by an administrator, a
// look tells it: when the entry ahead has gone, or after watching.RecheckAfter. Meanwhile no other attempt is delayed,
// for those behind watch the own entry.
func (e *entry) awaitNoEntryAhead(ctx context.Context) error {
	if e.permit != nil {
		return e.permit.await(ctx)
	}
	for e.stage < placed || e.ahead != nil {
		if ctx.Err() != nil {
			return retry.ContextErr(ctx)
		}
		if e.stage < placed {
			if err := e.look(ctx); err != nil {
				return err
			}
			continue
		}
		ahead := e.ahead
		err := watching.Change{
			Env: e.Queue.host.Env, Streams: &e.Queue.shared.streams,
			Key:  string(ahead.Key),
			Opts: []clientv3.OpOption{clientv3.WithFilterPut()},
			Over: func() bool { return e.ahead != ahead },
			Look: e.look,
			Hear: func(ctx context.Context, events []*clientv3.Event) error {
				// Keys are used again, and a lagging member also tells of an earlier entry at this key. A look too many does no
				// harm.
				if len(events) == 0 {
					return nil
				}
				return e.look(ctx)
			},
		}.Await(ctx)
		if err != nil {
			return err
		}
		telemetry.Woken(ctx)
	}
	return nil
}

// look asks etcd what stands ahead of the entry now, by one flat Txn: a Txn in it would make it a write. In a Set it
// covers the later entries, too, while there is room.
func (e *entry) look(ctx context.Context) error {
	if e.permit != nil {
		return e.permit.look(ctx)
	}
	a, sent := e.of, e.Queue.host.Clock()
	n := len(a.entries)
	own := make(requests.Ops, 0, n+2)
	for _, each := range a.entries {
		own.Add(Meta(each.Key))
	}
	all, reads := own[:n:n], make([]readAhead, 0, 1)
	for _, each := range a.entries[slices.Index(a.entries, e):] {
		if each.isFree() && each != e {
			continue
		}
		ops, unsettled := each.readsAhead((requests.MaxOps - n) / 2)
		if each != e && len(all)+len(ops) > requests.MaxOps {
			break
		}
		reads = append(reads, readAhead{each, all.Add(ops...), unsettled})
	}
	t := requests.Txn{Then: all}
	if e.ahead != nil {
		// While the entry ahead stands, nothing else ahead matters. To find what stands ahead, etcd goes through all keys
		// of the queue.
		t.If = []clientv3.Cmp{createdAt(string(e.ahead.Key), e.ahead.CreateRevision)}
		t.Then, t.Else = own, all
	}
	r, err := t.Ask(ctx, e.Queue.host.Sender, requests.Read)
	if err != nil {
		return err
	}
	if !a.standIn(r) {
		return ErrEntryGone
	}
	a.revision, a.readSent = r.Header.Revision, sent
	a.looks++
	if e.ahead != nil && r.Succeeded {
		e.tell(ctx)
		return nil
	}
	for _, each := range reads {
		each.seen = a.looks
		each.note(r)
	}
	return nil
}

// standIn reports whether all entries of the attempt stand as this session has put them. The reply begins with them.
func (a *attempt) standIn(r requests.Reply) bool {
	for i, e := range a.entries {
		// With another mod revision an administrator may be removing the entry. Then its lease ends by itself, perhaps
		// right after this read:
		//
		//	rev 12  this attempt puts its entry
		//	rev 15  the entry is moved to a short lease: create revision 12, mod revision 15. It must not hold
		if own := r.First(i); !e.Is(own) || own.ModRevision != e.modRevision() {
			return false
		}
	}
	return true
}

// readAhead is what a look reads of what stands ahead of an entry.
type readAhead struct {
	*entry
	first     int         // the reply to the first of its operations
	unsettled []deadClaim // see entry.examine
}

// readsAhead returns the reads of what stands ahead: the nearest entry; the claims, dead if they are behind this entry;
// and, of at most so many sessions, what a claim says, and the session key.
func (e *entry) readsAhead(most int) (ops requests.Ops, unsettled []deadClaim) {
	// Claims alone would tell less: their lease may be revoked by itself.
	ops.Add(e.Queue.nearest(e.Created))
	if !e.Queue.Unclaimed {
		ops.Add(e.Queue.claimsAhead(e.Created))
		// The session key must be read at one revision with the claim, and with the missing entry.
		unsettled = e.examine(&ops, most)
	}
	return ops, unsettled
}

// note records the replies to readsAhead.
func (l readAhead) note(r requests.Reply) {
	e := l.entry
	var claims *pb.RangeResponse
	if !e.Queue.Unclaimed {
		claims = r.Range(l.first + 1)
	}
	e.ahead = r.First(l.first)
	e.claims, e.more = e.Queue.dead(e.ahead, claims.GetKvs()), claims.GetMore()
	now := time.Now()
	e.Queue.shared.delays.noteDead(e.claims, e.Queue.host.LockDelay, now)
	e.noteExamined(r, l.first+2, l.unsettled, now)
	e.place(r.Header.Revision, e.ahead == nil && (len(e.claims) > 0 || e.more))
}

// examine adds the reads of unsettled claims, and of the session keys of their holders, and returns these claims. A
// claim is unsettled if it is that of the entry ahead, because this entry may go next, or if it is dead, until its
// session key has gone. All claims of a session say the same, so one of each session is enough. most bounds how many.
//
// A claim that an Attach has put again is another session's, which its value names. So it is read by itself, and once
// more when that session is known:
//
//	rev 10  A puts entry and claim, and holds; rev 20: A detaches; rev 30: B attaches
//	rev 40  B's lease is revoked. A's session key may stand or not: it says nothing
//	        C's look reads the claim, and that it names B; C's next look reads B's session key, and the delay is known
func (e *entry) examine(to *requests.Ops, most int) (unsettled []deadClaim) {
	known := make(map[group]bool)
	add := func(c deadClaim) {
		if g := groupOf(e.Queue, c); !known[g] {
			known[g] = true
			c.asked = cmp.Or(e.Queue.shared.delays.get(c).says.Session, e.Queue.holderOf(c))
			unsettled = append(unsettled, c)
		}
	}
	if e.ahead != nil {
		if _, ours := layout.LeaseOf(string(e.ahead.Key)); ours {
			add(deadClaim{key: e.Queue.At.ClaimKey(string(e.ahead.Key)), rev: e.ahead.CreateRevision})
		}
	}
	// Sessions never read come first. Otherwise many claims of living sessions would keep them from being read.
	var again []deadClaim
	for _, c := range e.claims {
		switch d := e.Queue.shared.delays.get(c); {
		case d.acquitted || !d.gone.IsZero():
		case d.examined:
			again = append(again, c)
		default:
			add(c)
		}
	}
	for _, c := range again {
		add(c)
	}
	unsettled = unsettled[:min(len(unsettled), most)]
	for _, c := range unsettled {
		// A foreign entry has no such key: its delay is the lock delay.
		session := layout.SessionKey(e.Queue.host.Namespace, c.asked)
		to.Add(clientv3.OpGet(c.key), clientv3.OpGet(session, clientv3.WithCountOnly()))
	}
	return unsettled
}

// group names the claims of one session, which all say the same, or a single claim that was moved.
type group struct {
	session clientv3.LeaseID
	moved   string // its key
}

func groupOf(q *Queue, c deadClaim) group {
	if c.moved {
		return group{moved: c.key}
	}
	return group{session: q.holderOf(c)}
}

// holderOf returns the session's lease under which a claim was put. The key of a foreign entry names none.
func (q *Queue) holderOf(c deadClaim) clientv3.LeaseID {
	holder, _ := layout.LeaseOf(q.At.EntryOf(c.key))
	return holder
}

// noteExamined records the replies to examine, from response i on: what is read of one claim holds for all dead claims
// of its group. Call noteDead before.
func (e *entry) noteExamined(r requests.Reply, i int, claims []deadClaim, now time.Time) {
	if len(claims) == 0 {
		return
	}
	of := make(map[group][]deadClaim)
	for _, c := range e.claims {
		g := groupOf(e.Queue, c)
		of[g] = append(of[g], c)
	}
	for _, c := range claims {
		if claim := r.First(i); claim != nil {
			c.moved = layout.WasMoved(e.Queue.At, claim) // of the claim of the entry ahead, only this read knows it
			says, gone := layout.DecodeClaim(claim.Value), r.Range(i+1).Count == 0
			e.Queue.shared.delays.noteExamined(of[groupOf(e.Queue, c)], says, c.asked, gone, now)
		}
		i += 2
	}
}

// tell tells the caller the place of a waiting entry.
func (e *entry) tell(ctx context.Context) {
	c := e.caller
	if c.request.OnWait == nil || ctx.Err() != nil {
		return
	}
	if e.ahead != nil || e.permit != nil {
		c.tell(c.place)
		return
	}
	first := view.Place{Seen: time.Now()}
	if c.inSet {
		first.Name = c.q.At.Name
	}
	c.tell(func(context.Context) view.Place { return first })
}

// describe returns what to add to the error of a canceled call: what it was waiting for, unless the place tells it.
func (e *entry) describe(ctx context.Context) string {
	first := "it was first in the queue"
	switch {
	case ctx.Err() == nil:
		return ""
	case e.stage < placed:
		return "; etcd has not answered the request to queue"
	case e.ahead != nil || e.permit != nil && len(e.claims) == 0:
		return "" // the place says it
	case e.caller.inSet && !e.isFree():
		first = "it was first in the queue of " + names.Quote(e.Queue.At.Name)
	case e.caller.inSet:
		first = "it was first in all queues"
	}
	if e.isFree() {
		return fmt.Sprintf("; %s, and the reply came too late, or the session was not connected", first)
	}
	return fmt.Sprintf("; %s, and the lock delay had not passed: the last holder went without a release", first)
}

// scope says which entries a queue has, and which of them exclude an entry put through it.
type scope struct {
	At     layout.Keyspace
	Reader bool // entries put through it do not exclude one another

	// Unclaimed: there are no claims, because this client has no right to them. Below a foreign prefix they stand
	// elsewhere than the entries.
	Unclaimed bool
}

// conflicting returns the range of the entries that exclude an entry put through the queue.
func (s scope) conflicting() (from, end string) {
	if s.Reader {
		return s.At.Writers()
	}
	return s.At.All()
}

// conflictingClaims returns the range of the claims of such entries.
func (s scope) conflictingClaims() (from, end string) {
	if s.Reader {
		return s.At.WritersClaims()
	}
	return s.At.AllClaims()
}

// oldest reads the entry created first, the holder's, with its value.
func (s scope) oldest() clientv3.Op {
	opts := clientv3.WithFirstCreate()
	if s.At.Kind != holdfast.KindElection { // the two entries of a Downgradable have one create revision: see holderIn
		opts = append(opts, clientv3.WithLimit(2))
	}
	return clientv3.OpGet(s.At.Entries, opts...)
}

// holderIn returns the holder's entry out of the reply to oldest; nil if there is none.
func holderIn(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	if len(kvs) == 2 && kvs[0].CreateRevision == kvs[1].CreateRevision && layout.IsReader(string(kvs[0].Key)) {
		return kvs[1]
	}
	return requests.First(kvs)
}

// nearest reads the youngest conflicting entry created before a revision; 0: of all. For any choice by create revision
// the server goes through all keys of the range.
func (s scope) nearest(created int64) clientv3.Op {
	return s.ahead(created, clientv3.WithLimit(1), youngestFirst)
}

// ahead reads the conflicting entries created before a revision; 0: all.
func (s scope) ahead(created int64, opts ...clientv3.OpOption) clientv3.Op {
	from, end := s.conflicting()
	return createdBefore(from, end, created, opts...)
}

// maxClaims is how many claims one look reads: some 1.5 MB of keys. If there are more, another look follows.
const maxClaims = 1 << 14

// claimsAhead reads the keys of the conflicting claims created before a revision.
func (s scope) claimsAhead(created int64) clientv3.Op {
	from, end := s.conflictingClaims()
	return createdBefore(from, end, created, clientv3.WithLimit(maxClaims))
}

func createdBefore(from, end string, created int64, opts ...clientv3.OpOption) clientv3.Op {
	opts = append(opts, clientv3.WithRange(end), clientv3.WithKeysOnly())
	if created > 0 {
		opts = append(opts, clientv3.WithMaxCreateRev(created-1))
	}
	return clientv3.OpGet(from, opts...)
}

var youngestFirst = clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend)

// Meta reads a key without its value.
func Meta(key string) clientv3.Op { return clientv3.OpGet(key, clientv3.WithKeysOnly()) }

// createdAt is true in a Txn while key has this create revision; with rev 0, while the key does not exist.
func createdAt(key string, rev int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", rev)
}
