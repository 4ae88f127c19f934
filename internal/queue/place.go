package queue

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
)

// What an entry may do when the one ahead of it has left depends on how that
// left. A release deletes the entry and leaves the session key; a lease that
// ends, by expiry or because etcd revoked it although it was renewed, takes both
// along at one revision. In the second case the holder may not have been told
// yet, so the lock delay passes before the next one holds.

// maxJudged is how many entries ahead are judged one by one. Of more, one is
// presumed to have gone with its lease.
const maxJudged = 64

// verify reads whether the entry stands, and whether what was ahead of it still
// is.
func (e *entry) verify(ctx context.Context) error {
	resp, err := e.q.get(ctx, e.q.front(e.rev))
	if err != nil {
		return err
	}
	kvs := resp.Kvs
	if len(kvs) == 0 || string(kvs[0].Key) != e.key || kvs[0].CreateRevision != e.rev {
		return errEntryGone
	}
	e.revision = resp.Header.Revision
	switch ahead := first(kvs[1:]); {
	case e.ahead == nil:
		return nil
	case ahead != nil && ahead.CreateRevision == e.ahead.CreateRevision:
		e.place(e.ahead, resp.Header.Revision)
		return nil
	default:
		return e.judgeUnknown(ctx)
	}
}

// judge decides, after the entry ahead was deleted at revision d, what stands
// ahead now and whether the lock delay begins.
func (e *entry) judge(ctx context.Context, d int64) error {
	ops := []clientv3.Op{
		clientv3.OpGet(e.key, clientv3.WithKeysOnly()),
		e.q.nearest(e.rev-1, d),
	}
	key, ours := e.q.sessionKeyOf(e.ahead)
	if ours {
		ops = append(ops, clientv3.OpGet(key, clientv3.WithRev(d), clientv3.WithCountOnly()))
	}
	resp, err := e.q.read(ctx, ops...)
	if errors.Is(err, rpctypes.ErrCompacted) {
		return e.judgeCompacted(ctx)
	}
	if err != nil {
		return err
	}
	if !isEntry(rangeAt(resp, 0), e.rev) {
		return errEntryGone
	}
	e.revision = resp.Header.Revision
	ahead := rangeAt(resp, 1)
	if ahead == nil && ours && resp.Responses[2].GetResponseRange().Count == 0 {
		e.delay()
	}
	e.place(ahead, d)
	return nil
}

// judgeUnknown is judge where the revision of the deletion is not known: any of
// the entries that stood ahead at the last look may have gone with its lease.
func (e *entry) judgeUnknown(ctx context.Context) error {
	stood := []*mvccpb.KeyValue{e.ahead}
	if e.position != 1 { // others may have stood ahead of that one
		resp, err := e.q.get(ctx, clientv3.OpGet(e.q.entries, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
			clientv3.WithMaxCreateRev(e.rev-1), clientv3.WithRev(e.seen), clientv3.WithLimit(maxJudged+1)))
		if errors.Is(err, rpctypes.ErrCompacted) {
			return e.judgeCompacted(ctx)
		}
		if err != nil {
			return err
		}
		stood = resp.Kvs
	}
	ops := []clientv3.Op{clientv3.OpGet(e.key, clientv3.WithKeysOnly()), e.q.nearest(e.rev-1, 0)}
	for _, kv := range stood[:min(len(stood), maxJudged)] {
		if key, ours := e.q.sessionKeyOf(kv); ours {
			ops = append(ops, clientv3.OpGet(key, clientv3.WithCountOnly()))
		}
	}
	resp, err := e.q.read(ctx, ops...)
	if err != nil {
		return err
	}
	if !isEntry(rangeAt(resp, 0), e.rev) {
		return errEntryGone
	}
	e.revision = resp.Header.Revision
	revoked := len(stood) > maxJudged
	for _, r := range resp.Responses[2:] {
		revoked = revoked || r.GetResponseRange().Count == 0
	}
	if revoked {
		e.delay()
	}
	e.place(rangeAt(resp, 1), resp.Header.Revision)
	return nil
}

// judgeCompacted is judge where etcd's history no longer says how the entry
// ahead left.
func (e *entry) judgeCompacted(ctx context.Context) error {
	resp, err := e.q.read(ctx, clientv3.OpGet(e.key, clientv3.WithKeysOnly()), e.q.nearest(e.rev-1, 0))
	if err != nil {
		return err
	}
	if !isEntry(rangeAt(resp, 0), e.rev) {
		return errEntryGone
	}
	e.revision = resp.Header.Revision
	e.delay()
	e.place(rangeAt(resp, 1), resp.Header.Revision)
	return nil
}

// settled waits until it is known what stands ahead of the entry, and while it is
// at the front but may neither hold nor leave: until its lock delay has passed.
func (e *entry) settled(ctx context.Context) error {
	if err := e.located(ctx); err != nil {
		return err
	}
	if e.stage == placed && e.delayed() > 0 && !sleep(ctx, e.delayed()) {
		return backoff.ContextErr(ctx)
	}
	return nil
}

// mayLeave are the comparisons under which the entry may be deleted. One that
// never held leaves only while the entry ahead of it stands, or when the queue is
// free and no lock delay runs: otherwise the next in the queue would see a clean
// exit where a lease was revoked.
func (e *entry) mayLeave() []clientv3.Cmp {
	if e.stage == placed && e.ahead != nil {
		return []clientv3.Cmp{e.owned(), stands(e.ahead)}
	}
	return []clientv3.Cmp{e.owned()}
}
