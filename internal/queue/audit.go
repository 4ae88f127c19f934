package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/lease"
)

const (
	// auditBatch keeps one Txn under etcd's limit of 128 operations.
	auditBatch = 100

	// auditsAtOnce bounds the batches that are looked at side by side.
	auditsAtOnce = 8
)

// auditor notices entries that were deleted under their holders, within the lock
// delay: when the watch of the session key is on a member that hangs, nothing
// else tells a holder that its lease was revoked before the next one holds. One
// goroutine per session looks for them, and only while the session holds
// anything.
type auditor struct {
	sess lease.Host

	mu      sync.Mutex // protects what follows
	holds   map[*Hold]time.Time
	running bool
	blind   bool         // the latest look was not answered
	asking  *lease.Lease // whether etcd knows it is being asked

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
		a.running = a.sess.Go(a.run) // joined by Close; ends when nothing is held
	}
}

func (a *auditor) forget(h *Hold) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.holds, h)
}

// under returns the holds on a lease.
func (a *auditor) under(lease *lease.Lease) []*Hold {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []*Hold
	for h := range a.holds {
		if h.entry.lease == lease {
			all = append(all, h)
		}
	}
	return all
}

func (a *auditor) run(ctx context.Context) {
	tick := time.NewTicker(a.every())
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		due, more := a.due()
		if !more {
			return
		}
		a.lookAll(ctx, due)
		for _, holds := range due {
			a.since.note(a.sess, holds)
		}
	}
}

// every is the time between two looks at a hold. A hold that is younger than half
// of that is not looked at: so it takes three quarters of the lock delay, at most,
// until a look begins.
func (a *auditor) every() time.Duration {
	if delay := a.sess.LockDelay(); delay > 0 {
		return delay / 2
	}
	return time.Second
}

// due returns the holds to look at, by lease; more is false, and the goroutine
// ends, when nothing is held at all.
func (a *auditor) due() (due map[*lease.Lease][]*Hold, more bool) {
	young := a.every() / 2
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.holds) == 0 {
		a.running = false
		return nil, false
	}
	due = make(map[*lease.Lease][]*Hold)
	since := time.Now().Add(-young)
	for h, acquired := range a.holds {
		if !acquired.After(since) {
			due[h.entry.lease] = append(due[h.entry.lease], h)
		}
	}
	return due, true
}

// lookAll looks at batches side by side: with many holds, far from etcd, the
// last would otherwise be told seconds after the first.
func (a *auditor) lookAll(ctx context.Context, due map[*lease.Lease][]*Hold) {
	var all sync.WaitGroup
	defer all.Wait()
	room := make(chan struct{}, auditsAtOnce)
	for lease, holds := range due {
		for batch := range slices.Chunk(holds, auditBatch) {
			room <- struct{}{}
			all.Go(func() { // joined above
				defer func() { <-room }()
				a.look(ctx, lease, batch)
			})
		}
	}
}

// look ends the holds of a batch whose entries are gone. A look that is not
// answered decides nothing: the renewals judge the connection.
//
// The first look is brief, so that it ends within the lock delay; attempt sends it
// to other members when one hangs. The second one is patient, for a cluster that
// answers slowly.
func (a *auditor) look(ctx context.Context, lease *lease.Lease, holds []*Hold) {
	brief := a.every() / 2
	resp, err := a.read(ctx, brief, lease, holds)
	if err != nil && ctx.Err() == nil {
		resp, err = a.read(ctx, a.sess.RetryPolicy().Attempt, lease, holds)
	}
	if ctx.Err() != nil {
		return
	}
	if a.note(err); err != nil || resp.Succeeded {
		return
	}
	// First of all the holders are told. The rest is for the session to know.
	cause := a.causeOf(resp.Header, resp.Responses[0])
	for i, h := range holds {
		kvs := resp.Responses[i+1].GetResponseRange().Kvs
		if len(kvs) == 0 || kvs[0].CreateRevision != h.entry.rev {
			h.end(h.entryGone(cause))
		}
	}
	if cause != holdfast.CauseEntryDeleted {
		a.askFor(lease)
	}
}

// causeOf is why an entry is gone, by the answer that shows it: another cluster
// gave the answer, or the session key has gone together with the entry and so
// the lease was revoked, or only the entry was deleted.
func (a *auditor) causeOf(header *pb.ResponseHeader, sessionKey *pb.ResponseOp) holdfast.Cause {
	switch {
	case header.ClusterId != a.sess.Cluster():
		return holdfast.CauseClusterChanged
	case len(sessionKey.GetResponseRange().Kvs) == 0:
		return holdfast.CauseRevoked
	default:
		return holdfast.CauseEntryDeleted
	}
}

// read compares a batch of entries in one read-only Txn. Its else-branch reads
// them, which also makes it linearizable: a Txn without any range would be
// served from whatever the member has.
func (a *auditor) read(ctx context.Context, bound time.Duration, lease *lease.Lease, holds []*Hold) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	stand := make([]clientv3.Cmp, len(holds))
	read := make([]clientv3.Op, 1, len(holds)+1)
	read[0] = clientv3.OpGet(a.sess.SessionKey(lease.ID()), clientv3.WithKeysOnly())
	for i, h := range holds {
		stand[i] = h.IsOwner()
		read = append(read, clientv3.OpGet(h.Key(), clientv3.WithKeysOnly()))
	}
	resp, _, err := attempt.Once(ctx, a.sess.Sender(), attempt.Read, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return a.sess.Client().Txn(ctx).If(stand...).Else(read...).Commit()
	})
	return resp, err
}

// note counts looks that were not answered, and logs the first of a row.
func (a *auditor) note(err error) {
	a.mu.Lock()
	before := a.blind
	a.blind = err != nil
	a.mu.Unlock()
	if err == nil {
		return
	}
	a.sess.Telemetry().AuditFailed()
	if !before {
		a.sess.Logger().Warn("holdfast: the entries of held locks and terms could not be looked for; one that was deleted is noticed once etcd answers",
			"lease", fmt.Sprintf("%x", int64(a.sess.Lease().ID())), "error", err)
	}
}

// askFor asks etcd on a goroutine of the session whether it knows a lease, and
// ends the lease if not. One such question at a time is enough, however many
// entries have gone.
func (a *auditor) askFor(lease *lease.Lease) {
	if lease.Context().Err() != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asking == lease {
		return
	}
	a.asking = lease
	if !a.sess.Go(func(context.Context) { a.ask(lease) }) { // ends with the lease
		a.asking = nil
	}
}

func (a *auditor) ask(lease *lease.Lease) {
	resp, err := attempt.Ask(lease.Context(), a.sess.Sender(), attempt.Read, func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
		return a.sess.Client().TimeToLive(ctx, lease.ID())
	})
	if err == nil && resp.TTL < 0 { // 0 is less than a second, on a lease that lives
		a.sess.LeaseGone(lease.Context(), lease, nil)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asking == lease {
		a.asking = nil
	}
}
