// Package explain tells what has happened to a lock or an election: from the history that etcd still has, and from the
// records of auditors.
//
// History shows who queued, who was first, and how each entry left. It does not show why: an entry that is removed
// alone was released, or given up, or deleted by hand. So the cause of a loss is that of the holder's own record, and
// not known without one. It has no times either: only entries and records have them, by the clocks of those who wrote
// them.
package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/names"
)

// Of says which queue a Story is of.
type Of struct {
	Namespace string        // of its sessions
	Kind      holdfast.Kind // not a semaphore
	Name      string
	At        bool  // Name is a prefix
	From      int64 // the first revision; 0: as far back as etcd has its history
}

// Read reads the history of a queue up to the present. It needs to read the entries and the session keys, and ends with
// ctx.
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
	r := &reader{cli: cli, namespace: namespace, story: &Story{Queue: q, From: max(from, 1), All: from == 0}}
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

// reader replays the history of one queue.
type reader struct {
	cli       *clientv3.Client
	namespace string
	story     *Story
	standing  map[string]*Spell // by key
	gone      []*Spell          // at the present revision
}

// askEvery is the time between two questions whether all was told.
const askEvery = 100 * time.Millisecond

// read replays what a watch of the past tells. It has told all once etcd says, on its stream, that it is at a revision
// that is not older than the last one.
func (r *reader) read(ctx context.Context) error {
	s := r.story
	r.standing = make(map[string]*Spell)
	first, err := r.cli.Get(ctx, s.Queue.Entries, clientv3.WithPrefix(), clientv3.WithRev(s.From))
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
		spell.Earlier = spell.Entry.Revision < s.From
	}
	if s.From == s.To { // no watch: etcd says on no stream how far it is if one of its watches begins in the future
		return nil
	}
	wctx, end := context.WithCancel(ctx)
	defer end()
	events := r.cli.Watch(wctx, s.Queue.Entries, clientv3.WithPrefix(), clientv3.WithRev(s.From+1))
	ask := time.NewTicker(askEvery)
	defer ask.Stop()
	for {
		select {
		case answer, open := <-events:
			switch {
			case !open:
				return cmp.Or(backoff.ContextErr(ctx), errors.New("the watch of etcd's history was closed"))
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
				return cmp.Or(backoff.ContextErr(ctx), err)
			}
		case <-ctx.Done():
			return backoff.ContextErr(ctx)
		}
	}
}

// firstRevision returns a compactedError: a watch is told where history begins.
func (r *reader) firstRevision(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	for answer := range r.cli.Watch(ctx, r.story.Queue.Entries, clientv3.WithRev(r.story.From)) {
		if answer.CompactRevision > 0 {
			return compactedError{answer.CompactRevision}
		}
	}
	return cmp.Or(backoff.ContextErr(ctx), rpctypes.ErrCompacted)
}

// apply replays events. Those of one revision belong together: an entry and the next one may change places in it.
func (r *reader) apply(events []*clientv3.Event) {
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

func (r *reader) put(kv *mvccpb.KeyValue) {
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
		spell.Asked = append(spell.Asked, Notice{e.Notice, kv.ModRevision})
	}
	spell.Entry = e
}

func (r *reader) remove(key string, rev int64) {
	spell := r.standing[key]
	if spell == nil {
		return
	}
	delete(r.standing, key)
	spell.Ended = rev
	r.gone = append(r.gone, spell)
}

// hold notes who holds since a revision, and which of the two entries of a lock was let go alone.
func (r *reader) hold(rev int64) {
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
	for _, s := range r.standing {
		holds := s.Entry.Shared && first.Entry.Shared && (writer == 0 || s.Entry.Revision < writer)
		if (s == first || holds) && s.Held == 0 {
			s.Held = rev
		}
	}
}

// maxReads bounds the reads of one Txn; etcd takes 128.
const maxReads = 100

// judge finds out how the entries went: one that goes with its lease goes at the same revision as the session key,
// which its key names.
func (r *reader) judge(ctx context.Context) error {
	var open []*Spell
	for _, s := range r.story.Spells {
		lease, ours := layout.LeaseOf(s.Entry.Key)
		switch {
		case s.Ended == 0 || s.End != Stands:
		case s.Entry.Released():
			s.End = Rested
		case !s.Entry.Notice.Until.IsZero():
			s.End = Moved
		case !ours || lease == clientv3.NoLease:
			s.End = Unknown
		default:
			open = append(open, s)
		}
	}
	for batch := range slices.Chunk(open, maxReads) {
		gets := make([]clientv3.Op, len(batch))
		for i, s := range batch {
			lease, _ := layout.LeaseOf(s.Entry.Key)
			gets[i] = clientv3.OpGet(names.SessionKey(r.namespace, lease), clientv3.WithCountOnly(), clientv3.WithRev(s.Ended))
		}
		resp, err := r.cli.Txn(ctx).Then(gets...).Commit()
		switch {
		case errors.Is(err, rpctypes.ErrCompacted): // meanwhile
			for _, s := range batch {
				s.End = Unknown
			}
			continue
		case err != nil:
			return err
		}
		for i, s := range batch {
			s.End = Alone
			if resp.Responses[i].GetResponseRange().Count == 0 {
				s.End = LeaseEnded
			}
		}
	}
	return nil
}
