package queue

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/lease"
)

const (
	// censusEvery is the time between two lists of a lease's keys.
	censusEvery = 30 * time.Second

	// censusSoon is the time to the next list after a put whose copies may not
	// all have been answered.
	censusSoon = 5 * time.Second

	// censusAgain is the time between the two lists that a stray has to be in:
	// longer than any attempt that is about to account for it.
	censusAgain = 5 * time.Second
)

// census finds entries on the session's lease that no attempt accounts for.
// etcd's client sends a write again by itself when a proxy or a member answers
// for it that its time is over; if the first copy arrives after the entry of the
// second was released, its entry stands and nothing else would ever remove it.
type census struct {
	sess lease.Host
	wake chan struct{} // buffered

	running atomic.Bool

	mu      sync.Mutex      // protects foreign
	foreign map[string]bool // foreign prefixes that this session has used
}

// used notes that the session has used q.
func (c *census) used(q *Queue) {
	if q.foreign {
		c.mu.Lock()
		if c.foreign == nil {
			c.foreign = make(map[string]bool)
		}
		c.foreign[q.entries] = true
		c.mu.Unlock()
	}
	if !c.running.Load() && c.running.CompareAndSwap(false, true) {
		c.sess.Go(c.run) // joined by Close
	}
}

// soon has the next list made soon.
func (c *census) soon() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *census) run(ctx context.Context) {
	timer := time.NewTimer(jittered(censusEvery))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-c.wake:
			if !sleep(ctx, jittered(censusSoon)) {
				return
			}
		case <-ctx.Done():
			return
		}
		c.count(ctx)
		timer.Reset(jittered(censusEvery))
	}
}

// count hands over to the sweeper what two lists, an attempt apart, both show
// and no attempt accounts for. The keys are claimed in between: a session uses
// keys again, and an attempt that began to use one of these would be taken for the
// stray.
func (c *census) count(ctx context.Context) {
	lease := c.sess.Lease()
	var strays []*entry
	for key, q := range c.entries(ctx, lease) {
		if e := (&entry{q: q, lease: lease, key: key, stage: sent}); q.local.keys.register(e) {
			strays = append(strays, e)
		}
	}
	if len(strays) == 0 || !sleep(ctx, jittered(censusAgain)) {
		return
	}
	still := c.entries(ctx, lease)
	for _, e := range strays {
		if still[e.key] == nil {
			e.q.local.keys.unregister(e)
			continue
		}
		c.sess.Logger().Warn("holdfast: an entry stands that etcd's client put by itself, by repeating a request; it is being removed",
			"key", e.key, "lease", fmt.Sprintf("%x", int64(lease.ID())))
		e.q.local.sweeper.add(e)
	}
}

// entries lists the keys of the lease that have the form of an entry of this
// session. Everything else on the lease is the user's.
func (c *census) entries(ctx context.Context, lease *lease.Lease) map[string]*Queue {
	ctx, cancel := context.WithTimeout(ctx, censusAgain)
	defer cancel()
	defer context.AfterFunc(lease.Context(), cancel)()
	resp, _, err := attempt.Once(ctx, c.sess.Sender(), attempt.Read,
		func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
			return c.sess.Client().TimeToLive(ctx, lease.ID(), clientv3.WithAttachedKeys())
		})
	if err != nil {
		c.sess.Logger().Debug("holdfast: the keys of the lease could not be listed", "error", etcderr.WithConnection(c.sess.Client().ActiveConnection(), err))
		return nil
	}
	local := linesOf(c.sess)
	entries := make(map[string]*Queue)
	for _, key := range resp.Keys {
		if q := c.queueOf(string(key), lease); q != nil {
			q.local = local
			entries[string(key)] = q
		}
	}
	return entries
}

// queueOf returns the queue that a key is an entry of, if it has the form of an
// entry on that lease; otherwise nil.
func (c *census) queueOf(key string, lease *lease.Lease) *Queue {
	slash := strings.LastIndexByte(key, '/') + 1
	nonce, ours := strings.CutPrefix(key[slash:], fmt.Sprintf("%x-", int64(lease.ID())))
	if !ours || !isNonce(nonce) {
		return nil
	}
	prefix := key[:slash]
	c.mu.Lock()
	foreign := c.foreign[prefix]
	c.mu.Unlock()
	if foreign {
		return &Queue{sess: c.sess, kind: "lock", name: prefix, entries: prefix, foreign: true}
	}
	rest, ours := strings.CutPrefix(prefix, c.sess.Namespace()+"/")
	kind, name, _ := strings.Cut(rest, "/")
	name, found := strings.CutSuffix(name, "/@/")
	if !ours || !found || kind != "lock" && kind != "election" {
		return nil
	}
	return &Queue{sess: c.sess, kind: kind, name: name, entries: prefix}
}
