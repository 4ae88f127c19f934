package queue

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// When the entry ahead is gone, an entry may hold, at once or after the lock delay.
// That depends on how the entry ahead went. A release deletes the entry and leaves
// the session key. A lease that ends takes both along at one revision; it expired,
// or etcd revoked it although it was renewed. Then its holder may not have been told
// yet, and the lock delay gives it the time.
//
// Nothing can join a queue ahead of an entry. So what is ahead only shrinks, and
// each judgement below stays true.

// maxJudged bounds how many session keys of entries ahead are read. With more entries, the lease of one is presumed to
// have ended.
const maxJudged = 64

// verify reads whether the entry and the one ahead of it exist. If no other entry was ever ahead, the same Txn reads
// the session key of the entry ahead: that judges how the entry ended.
func (e *entry) verify(ctx context.Context) error {
	ops := []clientv3.Op{e.q.nearest(e.rev-1, 0)}
	onlyOne, ours := e.onlyOneAhead(), false
	learn := e.mustLearnOthers()
	if learn {
		ops = append(ops, e.q.othersAhead(e.rev))
	}
	if onlyOne {
		var key string
		if key, ours = e.q.sessionKeyOf(e.ahead); ours {
			ops = append(ops, clientv3.OpGet(key, clientv3.WithCountOnly()))
		}
	}
	looks := e.ticket.request.OnWait != nil
	if looks {
		ops = append(ops, e.q.lookAhead(e.rev)...)
	}
	resp, err := e.readJudgement(ctx, ops...)
	if learn && errors.Is(err, rpctypes.ErrCompacted) {
		e.others.add(e.q, nil, true)
		return e.verify(ctx)
	}
	if err != nil {
		return err
	}
	if looks {
		e.saw(e.q.aheadIn(resp, len(resp.Responses)-lookedAhead, e.rev))
	}
	if learn {
		e.others.add(e.q, resp.Range(2).Kvs, false)
	}
	switch ahead := resp.First(1); {
	case e.ahead == nil:
		return nil
	case isSame(ahead, e.ahead):
		e.setAhead(e.ahead, resp.Header.Revision, false)
		e.tellWaiting(ctx)
		return nil
	case onlyOne:
		e.setAhead(ahead, resp.Header.Revision, ours && resp.Range(2).Count == 0)
		return nil
	default:
		return e.judgeUnknown(ctx)
	}
}

// isSame reports whether kv is the entry ahead. The two entries of a Downgradable have one create revision.
func isSame(kv, ahead *mvccpb.KeyValue) bool {
	return isEntry(kv, ahead.CreateRevision) && bytes.Equal(kv.Key, ahead.Key)
}

// judge finds out, after the entry ahead was deleted at revision d, which entry is ahead now and whether the lock delay
// begins.
//
// One Txn reads the state as of d. A read of the present would skip entries that were deleted after d, and with them
// whether their leases were revoked.
func (e *entry) judge(ctx context.Context, d int64) error {
	ops := []clientv3.Op{e.q.nearest(e.rev-1, d)}
	if key, ours := e.q.sessionKeyOf(e.ahead); ours {
		ops = append(ops, clientv3.OpGet(key, clientv3.WithRev(d), clientv3.WithCountOnly()))
	}
	for _, key := range e.others.sessions { // at d, so that a session that ends later costs no delay
		ops = append(ops, clientv3.OpGet(key, clientv3.WithRev(d), clientv3.WithCountOnly()))
	}
	resp, err := e.readJudgement(ctx, ops...)
	if errors.Is(err, rpctypes.ErrCompacted) {
		return e.judgeCompacted(ctx)
	}
	if err != nil {
		return err
	}
	// With an entry ahead of it, the one that went had never held, or others hold
	// beside it, which are judged when they have gone.
	ahead := resp.First(1)
	e.setAhead(ahead, d, ahead == nil && (e.others.unknown || anyAbsent(resp.Responses[2:])))
	return nil
}

// anyAbsent reports whether one of some reads of a key has found none.
func anyAbsent(responses []*pb.ResponseOp) bool {
	return slices.ContainsFunc(responses, func(r *pb.ResponseOp) bool { return r.GetResponseRange().Count == 0 })
}

// judgeUnknown is judge if no watch told the revision of the deletion. Any of the entries that were ahead at the last
// read may have been the last one deleted, so the session keys of all of them must exist.
func (e *entry) judgeUnknown(ctx context.Context) error {
	stood := []*mvccpb.KeyValue{e.ahead}
	if e.position != 1 { // others may have stood ahead of that one
		resp, err := e.q.get(ctx, e.q.ahead(e.rev-1, e.aheadSeen, clientv3.WithLimit(maxJudged+1)))
		if errors.Is(err, rpctypes.ErrCompacted) {
			return e.judgeCompacted(ctx)
		}
		if err != nil {
			return err
		}
		stood = resp.Kvs
	}
	judged := e.others.with(e.q, stood)
	ops := []clientv3.Op{e.q.nearest(e.rev-1, 0)}
	for _, key := range judged.sessions {
		ops = append(ops, clientv3.OpGet(key, clientv3.WithCountOnly()))
	}
	resp, err := e.readJudgement(ctx, ops...)
	if err != nil {
		return err
	}
	e.setAhead(resp.First(1), resp.Header.Revision, judged.unknown || anyAbsent(resp.Responses[2:]))
	return nil
}

// judgeCompacted is judge if the history is compacted. The lock delay begins in any case.
func (e *entry) judgeCompacted(ctx context.Context) error {
	resp, err := e.readJudgement(ctx, e.q.nearest(e.rev-1, 0))
	if err != nil {
		return err
	}
	e.setAhead(resp.First(1), resp.Header.Revision, true)
	return nil
}

// readJudgement reads the entry itself (response 0) and others in one Txn. If the entry is gone, or another one of its
// set, it returns errEntryGone.
//
// An attempt that wants to hold also takes an entry for gone that another client has written to. It may be an
// administrator's removal: then the entry stands on a lease that ends by itself, perhaps right after this read.
func (e *entry) readJudgement(ctx context.Context, others ...clientv3.Op) (txns.Reply, error) {
	began := time.Now()
	t := txns.Txn{If: e.othersStand(), Then: append([]clientv3.Op{getMeta(e.key)}, others...)}
	resp, err := t.Ask(ctx, e.q.host.Sender(), attempt.Read)
	if err != nil {
		return resp, err
	}
	if !resp.Succeeded {
		return resp, errEntryGone
	}
	if own := resp.First(0); !isEntry(own, e.rev) || e.set != nil && own.ModRevision != e.modRevision() {
		return resp, errEntryGone
	}
	e.revision = resp.Header.Revision
	e.sawAll(began)
	return resp, nil
}

// awaitRemovable waits until, as far as this session knows, the entry may be removed: it is known which entry is ahead,
// and if there is none, no lock delay runs. The Txn that removes the entry compares the rest: see removalCmps.
func (e *entry) awaitRemovable(ctx context.Context) error {
	if err := e.locate(ctx); e.stage == created {
		return err // it may fail to make a token after it has found the place, which is enough here
	}
	if e.stage == placed && e.delayLeft() > 0 && !sleep(ctx, e.delayLeft()) {
		return backoff.ContextErr(ctx)
	}
	return nil
}
