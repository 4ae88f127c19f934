// Package explain tells what has happened to a lock or an election: from the history that etcd still has, and from the
// records of auditors.
//
// History shows who queued, who was first, and how each entry left: its claim tells whether it was let go. It does not
// show why: a holder also lets go when it was kicked, or worked for too long. So the cause of a loss is that of the
// holder's own record, and not known without one. It has no times either: only entries and records have them, by the
// clocks of those who wrote them.
package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// Of says which queue a Story is of.
type Of struct {
	Namespace string        // of its sessions
	Kind      holdfast.Kind // not a semaphore
	Name      string
	At        bool  // Name is a prefix
	From      int64 // the first revision; 0: as far back as etcd has its history
}

// Read reads the history of a queue up to the present. It needs to read the entries, their claims and the session keys,
// and ends with ctx.
func Read(ctx context.Context, cli *clientv3.Client, of Of) (*Story, error) {
	namespace, from := of.Namespace, of.From
	q := layout.Named(namespace, of.Kind, of.Name)
	if of.At {
		q = layout.At(namespace, of.Kind, of.Name)
	}
	bad := q.Check()
	switch {
	case bad != nil:
		return nil, bad
	case q.Kind == holdfast.KindSemaphore:
		return nil, errors.New("the history of a semaphore cannot be told: see Show of package admin")
	case from < 0:
		return nil, fmt.Errorf("revision %d is negative", from)
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx)) // ends the watches
	defer cancel()
	r := &replay{cli: cli, namespace: namespace, story: &Story{Queue: q, From: max(from, 1), All: from == 0}}
	now, err := cli.Get(ctx, q.Entries, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return nil, err
	}
	if r.story.To = now.Header.Revision; r.story.From > r.story.To {
		return nil, fmt.Errorf("revision %d is in the future: the store has %d", from, r.story.To)
	}
	for {
		err = r.read(ctx)
		var compacted compactedError
		if !errors.As(err, &compacted) {
			break
		}
		if from > 0 && from < compacted.first {
			return nil, fmt.Errorf("history before revision %d is compacted", compacted.first)
		}
		r.story = &Story{Queue: q, From: compacted.first, To: max(r.story.To, compacted.first)}
	}
	if err == nil {
		err = r.judge(ctx)
	}
	if err != nil {
		return nil, err
	}
	return r.story, nil
}

// compactedError says from which revision on there is history.
type compactedError struct{ first int64 }

func (e compactedError) Error() string { return fmt.Sprintf("compacted before revision %d", e.first) }

// replay replays the history of one queue.
type replay struct {
	cli       *clientv3.Client
	namespace string
	story     *Story
	standing  map[string]*Spell // by key
	gone      []*Spell          // at the present revision
	claims    map[string]int64  // of a name: the create revisions of the claims that stand, by key
}

// askEvery is the time between two questions whether all was told.
const askEvery = 100 * time.Millisecond

// read replays what a watch of the past tells. It has told all once etcd says, on its stream, that it is at a revision
// that is not older than the last one.
func (r *replay) read(ctx context.Context) error {
	s := r.story
	r.standing, r.claims = make(map[string]*Spell), make(map[string]int64)
	from, end := s.Queue.All()
	if !s.Queue.Foreign {
		_, end = s.Queue.AllClaims() // right behind the entries
	}
	first, err := r.cli.Get(ctx, from, clientv3.WithRange(end), clientv3.WithRev(s.From))
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return r.firstRevision(ctx)
	case err != nil:
		return err
	}
	for _, kv := range first.Kvs {
		r.put(kv)
	}
	r.hold(s.From)
	for _, spell := range s.Spells {
		spell.Earlier = spell.Held > 0 && spell.Entry.Revision < s.From
	}
	if s.From == s.To { // no watch: etcd says on no stream how far it is if one of its watches begins in the future
		return nil
	}
	wctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := r.cli.Watch(wctx, from, clientv3.WithRange(end), clientv3.WithRev(s.From+1))
	ask := time.NewTicker(askEvery)
	defer ask.Stop()
	for {
		select {
		case answer, open := <-events:
			switch {
			case !open:
				return cmp.Or(retry.ContextErr(ctx), errors.New("the watch of etcd's history was closed"))
			case answer.CompactRevision > 0:
				return compactedError{answer.CompactRevision}
			case answer.Err() != nil:
				return answer.Err()
			}
			r.apply(answer.Events)
			if answer.IsProgressNotify() && answer.Header.Revision >= s.To {
				s.To = answer.Header.Revision
				return nil
			}
		case <-ask.C:
			if err := r.cli.RequestProgress(wctx); err != nil {
				return cmp.Or(retry.ContextErr(ctx), err)
			}
		case <-ctx.Done():
			return retry.ContextErr(ctx)
		}
	}
}

// firstRevision returns a compactedError: a watch is told where history begins.
func (r *replay) firstRevision(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	for answer := range r.cli.Watch(ctx, r.story.Queue.Entries, clientv3.WithRev(r.story.From)) {
		if answer.CompactRevision > 0 {
			return compactedError{answer.CompactRevision}
		}
	}
	return cmp.Or(retry.ContextErr(ctx), rpctypes.ErrCompacted)
}

// apply replays events. Those of one revision belong together: an entry and the next one may change places in it.
func (r *replay) apply(events []*clientv3.Event) {
	for len(events) > 0 {
		rev := events[0].Kv.ModRevision
		n := slices.IndexFunc(events, func(ev *clientv3.Event) bool { return ev.Kv.ModRevision != rev })
		if n < 0 {
			n = len(events)
		}
		for _, ev := range events[:n] {
			if ev.Type == clientv3.EventTypeDelete {
				r.remove(string(ev.Kv.Key), rev)
			} else {
				r.put(ev.Kv)
			}
		}
		r.hold(rev)
		events = events[n:]
	}
}

func (r *replay) put(kv *mvccpb.KeyValue) {
	if r.story.Queue.IsClaim(string(kv.Key)) {
		r.claims[string(kv.Key)] = kv.CreateRevision
		return
	}
	e := r.story.Queue.View(kv)
	spell := r.standing[e.Key]
	if spell == nil || spell.Entry.Revision != e.Revision {
		spell = &Spell{}
		r.standing[e.Key] = spell
		r.story.add(spell)
	}
	before := spell.Entry.Notice
	before.Until = e.Notice.Until // the second step of a removal
	if e.Notice != before {
		spell.Asked = append(spell.Asked, NoticeAt{e.Notice, kv.ModRevision})
	}
	if e.DetachedAt != spell.Entry.DetachedAt {
		spell.Moves = append(spell.Moves, Move{e, kv.ModRevision})
	}
	spell.Entry = e
}

func (r *replay) remove(key string, rev int64) {
	delete(r.claims, key)
	spell := r.standing[key]
	if spell == nil {
		return
	}
	delete(r.standing, key)
	spell.Ended = rev
	r.gone = append(r.gone, spell)
}

// hold notes who holds since a revision, and which of the two entries of a lock was let go alone. Who waits for a dead
// claim does not hold.
func (r *replay) hold(rev int64) {
	for _, other := range r.standing {
		for _, s := range r.gone {
			if other.Entry.Revision == s.Entry.Revision {
				s.End = Downgraded
			}
		}
	}
	r.gone = r.gone[:0]
	var first *Spell
	writer := int64(0)
	for _, s := range r.standing {
		if first == nil || s.Entry.Revision < first.Entry.Revision ||
			s.Entry.Revision == first.Entry.Revision && !s.Entry.Shared {
			first = s
		}
		if !s.Entry.Shared && (writer == 0 || s.Entry.Revision < writer) {
			writer = s.Entry.Revision
		}
	}
	deadReader, deadWriter := r.dead()
	for _, s := range r.standing {
		holds := s.Entry.Shared && first.Entry.Shared && (writer == 0 || s.Entry.Revision < writer)
		waits := deadWriter < s.Entry.Revision || !s.Entry.Shared && deadReader < s.Entry.Revision
		if (s == first || holds) && s.Held == 0 && (!waits || s.Entry.Foreign) {
			s.Held = rev
		}
	}
}

// dead returns the create revisions of the oldest dead claims, of readers and of others: of those whose entries have
// gone. Entries behind wait for them.
func (r *replay) dead() (reader, writer int64) {
	reader, writer = math.MaxInt64, math.MaxInt64
	for key, rev := range r.claims {
		entry := r.story.Queue.EntryOf(key)
		switch s := r.standing[entry]; {
		case s != nil && s.Entry.Revision == rev:
		case layout.IsReader(entry):
			reader = min(reader, rev)
		default:
			writer = min(writer, rev)
		}
	}
	return reader, writer
}

// maxJudged bounds the entries that one Txn asks about, with two reads each; etcd takes 128.
const maxJudged = 60

// judge finds out how the entries went, by what stood at the revision at which each did.
//
//	claim stood, session key did not   the lease expired, or was revoked
//	claim and session key stood        the entry was deleted by hand
//	neither stood                      the session revoked the lease of its claims, then that of its entries: at Close,
//	                                   or when it was told of a loss
//	session key stood, claim did not   both keys of the entry were deleted: released, or given up
func (r *replay) judge(ctx context.Context) error {
	var open []*Spell
	for _, s := range r.story.Spells {
		_, ours := layout.LeaseOf(s.Entry.Key)
		switch {
		case s.Ended == 0 || s.End != Stands:
		case s.Entry.Detached():
			s.End = RanOut
		case s.Entry.Released():
			s.End = Rested
		case !s.Entry.Notice.Until.IsZero():
			s.End = Moved
		case !ours || s.Entry.Lease == clientv3.NoLease:
			s.End = Unknown
		default:
			open = append(open, s)
		}
	}
	for batch := range slices.Chunk(open, maxJudged) {
		if err := r.judgeBatch(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

func (r *replay) judgeBatch(ctx context.Context, batch []*Spell) error {
	var gets []clientv3.Op
	for _, s := range batch {
		session := layout.SessionKey(r.namespace, s.Entry.Lease) // of the one that has attached it, perhaps
		for _, key := range []string{session, r.story.Queue.ClaimKey(s.Entry.Key)} {
			gets = append(gets, clientv3.OpGet(key, clientv3.WithKeysOnly(), clientv3.WithRev(s.Ended)))
		}
	}
	resp, err := r.cli.Txn(ctx).Then(gets...).Commit()
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return err
	}
	for i, s := range batch {
		if err != nil { // compacted meanwhile
			s.End = Unknown
			continue
		}
		session := resp.Responses[2*i].GetResponseRange().Kvs
		claims := resp.Responses[2*i+1].GetResponseRange().Kvs
		claimed := len(claims) > 0 && claims[0].CreateRevision == s.Entry.Revision
		switch {
		case claimed && len(session) == 0:
			s.End = LeaseEnded
		case claimed:
			s.End = Deleted
		case len(session) == 0:
			s.End = GaveUp
		default:
			s.End = LetGo
		}
	}
	return nil
}
