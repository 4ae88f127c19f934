package queue

import (
	"context"
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// A reader waits for the writers ahead of it, and a writer for all that is ahead. So
// several readers may hold at a time. A writer watches the youngest entry ahead, and
// how that one goes says nothing of the readers that went before it: one of them may
// have been revoked, and not be told yet. So a writer remembers the readers that stood
// ahead when it queued, and holds at once only if all their session keys exist.
//
// A reader remembers the writers ahead in the same way. A writer that gives up may leave
// while the entry ahead of it stands. If that is a reader, it may be one that waits for
// the lock delay after a revoked writer, and it does not hold up the reader behind.

// othersAhead are the entries of the other mode that an entry remembers.
type othersAhead struct {
	known    bool     // those ahead of this entry are among them
	sessions []string // session keys, each once, at most maxJudged
	unknown  bool     // there were more, or etcd no longer knows them
}

// add adds entries that stood ahead. With unknown, etcd no longer knows which did.
func (r *othersAhead) add(q *Queue, entries []*mvccpb.KeyValue, unknown bool) {
	*r = r.with(q, entries)
	r.known, r.unknown = true, r.unknown || unknown
}

// with returns r with the session keys of further entries.
func (r othersAhead) with(q *Queue, entries []*mvccpb.KeyValue) othersAhead {
	r.sessions = slices.Clone(r.sessions)
	for _, kv := range entries {
		if key, ours := q.sessionKeyOf(kv); ours && !slices.Contains(r.sessions, key) {
			r.sessions = append(r.sessions, key)
		}
	}
	if len(entries) > maxJudged || len(r.sessions) > maxJudged {
		r.sessions, r.unknown = nil, true
	}
	return r
}

// onlyOneAhead reports whether the entry ahead is the only one that has ever stood
// ahead, so that the way it goes decides alone.
func (e *entry) onlyOneAhead() bool {
	return e.ahead != nil && e.position == 1 && len(e.others.sessions) == 0 && !e.others.unknown
}

// mustLearnOthers reports whether entries of the other mode may be ahead that e does not
// remember.
func (e *entry) mustLearnOthers() bool {
	return e.ahead != nil && !e.others.known && !e.onlyOneAhead()
}

// passReaders has successor, which is to be put in e's place, remember the readers that
// e waits for. Those that are gone by then are not ahead of successor any more.
func (e *entry) passReaders(ctx context.Context, successor *entry) error {
	if err := e.awaitRemovable(ctx); err != nil { // it learns the place of e, if that is unknown
		return err
	}
	if e.stage != placed || e.ahead == nil {
		return nil // whatever e waited for is judged
	}
	if e.mustLearnOthers() {
		switch resp, err := e.q.get(ctx, e.q.othersAhead(e.rev)); {
		case err == nil:
			e.others.add(e.q, resp.Kvs, false)
		case errors.Is(err, rpctypes.ErrCompacted):
			e.others.add(e.q, nil, true)
		default:
			return err
		}
	}
	successor.others = e.others
	successor.others.known = false // its own are yet to be read
	return nil
}
