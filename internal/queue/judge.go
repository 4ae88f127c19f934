package queue

import (
	"bytes"
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/inquest"
	"github.com/holdfast-go/holdfast/internal/reads"
	"github.com/holdfast-go/holdfast/internal/sending"
	"github.com/holdfast-go/holdfast/internal/steps"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// maxEnded is for how many sessions an inquest is made. With more, one is presumed to have held when its lease ended.
const maxEnded = 64

// Nothing can join a queue ahead of an entry. So what is ahead only shrinks, and each judgment below stays true: how
// the entry ahead went, and so whether this one waits for the lock delay. See the package comment.

// verify reads whether the entry and the one ahead of it exist. If that is gone, it finds out which entry is ahead now
// and whether the lock delay begins. If no other entry was ever ahead, the same Txn reads the session key of the one.
func (w *wait) verify(ctx context.Context) error {
	var ask txns.Ops
	if w.ahead == nil { // nothing can come ahead
		_, err := w.read(ctx, ask)
		return err
	}
	q := w.e.q
	nearest := ask.Add(q.Nearest(w.e.rev-1, 0))
	var others int
	var session txns.Groups
	onlyOne, learn := w.onlyOneAhead(), w.mustLearnOthers()
	if learn {
		others = ask.Add(q.OthersAhead(w.e.rev))
	}
	var judged reads.Sessions
	if onlyOne {
		judged = judged.With([]*mvccpb.KeyValue{w.ahead})
		session = judged.Ask(q.host.SessionKey, &ask, 0)
	}
	look := w.e.ticket.lookToTell(&ask, w.e.rev)
	r, err := w.read(ctx, ask)
	if learn && errors.Is(err, rpctypes.ErrCompacted) {
		w.others.Add(nil, w.e.rev, true)
		return w.verify(ctx)
	}
	if err != nil {
		return err
	}
	look.saw(r)
	if learn {
		w.others.Add(r.Range(others).Kvs, w.e.rev, false)
	}
	switch ahead := r.First(nearest); {
	case isSame(ahead, w.ahead):
		w.setAhead(w.ahead, r.Header.Revision, false)
		w.tell(ctx)
		return nil
	case ahead != nil: // it has judged those that are gone, or they have never held
		w.setAhead(ahead, r.Header.Revision, false)
		return nil
	case onlyOne:
		return w.judgeEnded(ctx, r.Header.Revision, judged.Absent(r, session), false)
	default:
		return w.judgeUnknown(ctx, r.Header.Revision)
	}
}

// isSame reports whether kv is the entry ahead. The two entries of a Downgradable have one create revision.
func isSame(kv, ahead *mvccpb.KeyValue) bool {
	return reads.IsEntry(kv, ahead.CreateRevision) && bytes.Equal(kv.Key, ahead.Key)
}

// onlyOneAhead reports whether the entry ahead is the only one that has ever stood
// ahead, so that the way it goes decides alone.
func (w *wait) onlyOneAhead() bool {
	return w.position == 1 && len(w.others.Leases) == 0 && !w.others.Unknown
}

// mustLearnOthers reports whether entries of the other mode may be ahead that the entry does not remember.
func (w *wait) mustLearnOthers() bool {
	return !w.others.Known && !w.onlyOneAhead()
}

// judge finds out, after the entry ahead was deleted at revision d, which entry is ahead now and whether the lock delay
// begins.
//
// One Txn reads the state as of d. A read of the present would skip entries that were deleted after d, and with them
// whether their leases were revoked.
func (w *wait) judge(ctx context.Context, d int64) error {
	q := w.e.q
	went := reads.Sessions{}.With([]*mvccpb.KeyValue{w.ahead})
	var ask txns.Ops
	nearest := ask.Add(q.Nearest(w.e.rev-1, d))
	session := went.Ask(q.host.SessionKey, &ask, d)
	others := w.others.Ask(q.host.SessionKey, &ask, d) // at d, so that a session that ends later costs no delay
	r, err := w.read(ctx, ask)
	if errors.Is(err, rpctypes.ErrCompacted) {
		return w.judgeCompacted(ctx)
	}
	if err != nil {
		return err
	}
	// With an entry ahead of it, the one that went had never held, or others hold
	// beside it, which are judged when they have gone.
	if ahead := r.First(nearest); ahead != nil {
		w.setAhead(ahead, d, false)
		return nil
	}
	withItsKey := len(went.Absent(r, session)) > 0
	return w.judgeEnded(ctx, d, w.others.Absent(r, others), w.others.Unknown || withItsKey)
}

// judgeUnknown is judge if no watch told the revision of the deletion, and the queue was free at a later one. Any of
// the entries that were ahead at the last read may have been the last one deleted, so none may have held when its
// lease ended.
func (w *wait) judgeUnknown(ctx context.Context, at int64) error {
	q := w.e.q
	stood := []*mvccpb.KeyValue{w.ahead}
	if w.position != 1 { // others may have stood ahead of that one
		resp, err := q.host.Sender().Get(ctx, q.Ahead(w.e.rev-1, w.seen, clientv3.WithLimit(reads.MaxRemembered+1)))
		if errors.Is(err, rpctypes.ErrCompacted) {
			w.setUnknown(nil, at)
			return nil
		}
		if err != nil {
			return err
		}
		stood = resp.Kvs
	}
	judged := w.others.With(stood)
	var ask txns.Ops
	sessions := judged.Ask(q.host.SessionKey, &ask, at)
	r, err := w.read(ctx, ask)
	if errors.Is(err, rpctypes.ErrCompacted) {
		w.setUnknown(nil, at)
		return nil
	}
	if err != nil {
		return err
	}
	return w.judgeEnded(ctx, at, judged.Absent(r, sessions), judged.Unknown)
}

// judgeEnded records that the queue was free at a revision, at which the session keys of some leases were gone. The
// lock delay begins, unless none of these can have held when its lease ended. With delays it begins in any case.
//
// A session that ended long ago costs a quarter of the delay. There may have been no quorum since then until just now,
// and with it the former holder is told.
//
// The inquest takes no longer than the lock delay, which runs meanwhile. What it does not find costs the delay.
func (w *wait) judgeEnded(ctx context.Context, at int64, ended []clientv3.LeaseID, delays bool) error {
	seen, before := w.seen, w.delay
	if delays || len(ended) == 0 || len(ended) > maxEnded {
		w.setAhead(nil, at, delays || len(ended) > 0)
		return nil
	}
	q := w.e.q
	ask := inquest.Inquest{
		Scope: q.Scope, Created: w.e.rev, Past: w.e.of.past.Known(time.Now(), q.shared.lockDelay),
		KeyOf: q.host.SessionKey, Read: w.read,
	}
	w.noteAhead(nil, at, true)
	ctx, cancel := context.WithTimeout(ctx, w.delayLeft())
	defer cancel()
	found, err := ask.Search(ctx, ended, []int64{w.others.Since, w.e.rev, seen}, at)
	delays = found == inquest.MayHold // so it is, too, if the inquest has failed
	w.e.say(steps.Step{
		Action: steps.Judged, Delays: delays, LongTold: found == inquest.LongTold,
		Unfound: err != nil || delays && w.others.Unknown,
	})
	if errors.Is(err, ErrEntryGone) {
		return err
	}
	if delays {
		return nil // the lock delay goes on
	}
	quarter := delayOf(q.shared.lockDelay / 4)
	if found == inquest.LongTold && before.until.Before(quarter.until) {
		before = quarter
	}
	w.setDelay(before)
	return nil
}

// judgeCompacted is judge if the history is compacted. The lock delay begins in any case.
func (w *wait) judgeCompacted(ctx context.Context) error {
	var ask txns.Ops
	nearest := ask.Add(w.e.q.Nearest(w.e.rev-1, 0))
	r, err := w.read(ctx, ask)
	if err != nil {
		return err
	}
	w.setUnknown(r.First(nearest), r.Header.Revision)
	return nil
}

// read sends some reads, and one of the entry itself, as one Txn. If the entry is gone, or another one of its attempt,
// it returns ErrEntryGone.
//
// An attempt that wants to hold also takes an entry for gone that another client has written to. It may be an
// administrator's removal: then the entry stands on a lease that ends by itself, perhaps right after this read.
func (w *wait) read(ctx context.Context, ask txns.Ops) (txns.Reply, error) {
	e, began := w.e, time.Now()
	self := ask.Add(reads.Meta(e.key))
	t := txns.Txn{If: e.othersStand(), Then: ask}
	r, err := t.Ask(ctx, e.q.host.Sender(), sending.Read)
	if err != nil {
		return r, err
	}
	if !r.Succeeded {
		return r, ErrEntryGone
	}
	if own := r.First(self); !reads.IsEntry(own, e.rev) || !e.leaving && own.ModRevision != e.modRevision() {
		return r, ErrEntryGone
	}
	w.looked = r.Header.Revision
	if !e.leaving { // others of its attempt may be leaving, each on a goroutine of its own
		e.of.saw(r.Header.Revision, began)
	}
	return r, nil
}
