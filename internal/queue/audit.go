package queue

import (
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/session"
)

const (
	// auditEvery is how often entries that have been held for as long are
	// looked for. A deletion is noticed within two of it.
	auditEvery = time.Second

	// auditBatch keeps one Txn under etcd's limit of 128 operations.
	auditBatch = 100
)

// auditor notices entries that were deleted under their holders. One goroutine
// looks after all holds of a session, and only while there are any; a hold
// shorter than auditEvery costs no RPC.
type auditor struct {
	sess *session.Session

	mu      sync.Mutex // protects what follows
	holds   map[*Hold]time.Time
	running bool

	since sinceNoter
}

func (a *auditor) add(h *Hold) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.holds == nil {
		a.holds = make(map[*Hold]time.Time)
	}
	a.holds[h] = time.Now()
	if !a.running {
		a.running = a.sess.Base().Go(a.run) // joined by Close; ends when nothing is held
	}
}

func (a *auditor) forget(h *Hold) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.holds, h)
}

func (a *auditor) run(ctx context.Context) {
	tick := time.NewTicker(auditEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		holds, more := a.due()
		if !more {
			return
		}
		for batch := range slices.Chunk(holds, auditBatch) {
			a.look(ctx, batch)
		}
		a.since.note(a.sess, holds)
	}
}

// due returns the holds to look at; more is false, and the goroutine ends,
// when nothing is held at all.
func (a *auditor) due() (holds []*Hold, more bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.holds) == 0 {
		a.running = false
		return nil, false
	}
	since := time.Now().Add(-auditEvery)
	for h, acquired := range a.holds {
		if !acquired.After(since) {
			holds = append(holds, h)
		}
	}
	return holds, true
}

// look compares a batch of entries in one read-only Txn. Its else-branch reads
// them, which also makes it linearizable: a Txn without any range would be
// served from whatever the member has. An RPC that fails decides nothing; the
// renewals judge the connection.
func (a *auditor) look(ctx context.Context, holds []*Hold) {
	ctx, cancel := context.WithTimeout(ctx, a.sess.Base().RetryPolicy().Attempt)
	defer cancel()
	stand := make([]clientv3.Cmp, len(holds))
	read := make([]clientv3.Op, len(holds))
	for i, h := range holds {
		stand[i] = h.IsOwner()
		read[i] = clientv3.OpGet(h.Key(), clientv3.WithKeysOnly())
	}
	resp, err := a.sess.Client().Txn(ctx).If(stand...).Else(read...).Commit()
	if err != nil || resp.Succeeded {
		return
	}
	for i, h := range holds {
		kvs := resp.Responses[i].GetResponseRange().Kvs
		if len(kvs) == 0 || kvs[0].CreateRevision != h.entry.rev {
			h.end(h.vanished(h.entry.lease.Context()))
		}
	}
}
