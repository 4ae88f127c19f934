package queue

import (
	"context"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/lease"
)

const (
	// sinceAfter is how long a hold must have lasted to be noted.
	sinceAfter = time.Second

	// noteEvery is the time between two requests, however often the audit looks,
	// and maxNoted is how many entries one of them notes.
	noteEvery = time.Second
	maxNoted  = 16

	// maxNotedBytes bounds the request: etcd takes 1.5 MiB, and candidates'
	// values may be large.
	maxNotedBytes = 256 << 10
)

// sinceNoter has entries say since when they are held. When an entry is put it
// is not known whether it will ever be held; a second write for each grant would
// make every lock dearer. So it is done once for those holds that have lasted a
// while, and which people may come to look for.
//
// It is done for people, so nothing waits for it, and what etcd refuses is not
// tried again: the entry then goes on saying since when it is queued.
type sinceNoter struct {
	busy   atomic.Bool // a request is under way
	latest time.Time   // when one was made; of the audit's goroutine
}

// note is given holds that have lasted a second or more, each time the audit
// looks, and sends at most one request a second: for those that were not noted yet.
func (n *sinceNoter) note(sess lease.Host, holds []*Hold) {
	if time.Since(n.latest) < noteEvery || !n.busy.CompareAndSwap(false, true) {
		return
	}
	due, ops := dueForNote(holds)
	sent := len(due) > 0 && sess.Go(func(ctx context.Context) { // joined by Close
		defer n.busy.Store(false)
		send(ctx, sess, due, ops)
	})
	if sent {
		n.latest = time.Now()
	} else {
		n.busy.Store(false)
	}
}

// dueForNote chooses from holds, and makes an operation for each. It compares the
// create revision as the mod revision: an entry that Update has put says since
// when it is held, and a value that has been replaced must not come back.
func dueForNote(holds []*Hold) (due []*Hold, ops []clientv3.Op) {
	bytes := 0
	for _, h := range holds {
		e := h.entry
		if time.Since(h.since) < sinceAfter || h.modified.Load() != 0 || h.Check() != nil {
			continue
		}
		v, ok := DecodeValue([]byte(e.value))
		if e.q.verbatim() || !ok {
			h.sawModified(e.rev) // nothing to note
			continue
		}
		value := e.heldValue(h.since, v.Data)
		if bytes += len(value); len(due) == maxNoted || len(due) > 0 && bytes > maxNotedBytes {
			break
		}
		due = append(due, h)
		ops = append(ops, clientv3.OpTxn(
			e.holdsValue(e.rev), []clientv3.Op{e.putValue(value)}, []clientv3.Op{clientv3.OpGet(e.key, clientv3.WithKeysOnly())}))
	}
	return due, ops
}

// send sends the operations as one Txn. One that is not answered is made anew at
// the next look; should both be carried out, the second finds that it is done.
func send(ctx context.Context, sess lease.Host, holds []*Hold, ops []clientv3.Op) {
	resp, _, err := attempt.Once(ctx, sess.Sender(), attempt.Write, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return sess.Client().Txn(ctx).Then(ops...).Commit()
	})
	if err != nil && (ctx.Err() != nil || etcderr.Pending(err)) {
		return
	}
	for i, h := range holds {
		mod := h.entry.rev // refused, or gone
		if err == nil {
			own := resp.Responses[i].GetResponseTxn()
			if own.Succeeded {
				mod = resp.Header.Revision
			} else if kvs := own.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 && kvs[0].CreateRevision == h.entry.rev {
				mod = kvs[0].ModRevision
			}
		}
		h.sawModified(mod)
	}
}
