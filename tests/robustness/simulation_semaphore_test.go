package robustness

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/locker"
)

// Semaphores with permits of several weights. In half of the schedules their limits change.
func TestSimulationOfSemaphores(t *testing.T) {
	var together, waited atomic.Int64
	t.Cleanup(func() {
		t.Logf("%d permits were granted beside others, %d after a wait", together.Load(), waited.Load())
		if min(together.Load(), waited.Load()) < int64(*simulationCount) {
			t.Error("the test proves nothing: too few permits were held together, or waited for")
		}
	})
	simulateAll(t, func(seed uint64) *simulation {
		s := &simulation{seed: seed, work: usePermits, once: acquireOnce, permits: true}
		t.Cleanup(func() {
			together.Add(int64(s.oracle.together))
			waited.Add(int64(s.oracle.marked))
		})
		return s
	})
}

// usePermits is one goroutine of a process. The first one of all changes limits, too.
func usePermits(s *simulation, c *simClient, i int) {
	r := s.source(1000 + 100*uint64(c.id) + uint64(i))
	resizes := c.id == 0 && i == 0 && s.source(5).IntN(2) == 0
	time.Sleep(upTo(r, 100*time.Millisecond))
	for !s.stop.Load() {
		name := s.names[r.IntN(len(s.names))]
		limit := s.limit(name, math.MaxInt64)
		if resizes && r.IntN(4) == 0 {
			s.resize(c, name, limit, 1+r.IntN(4), upTo(r, 2*time.Second)+time.Nanosecond)
			continue
		}
		bound := []time.Duration{20 * time.Millisecond, time.Second, 5 * time.Second, 20 * time.Second}[r.IntN(4)]
		if s.profile.hasty && r.IntN(4) > 0 {
			bound = 2*s.profile.latency + time.Millisecond
		}
		holds := []time.Duration{2 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second, 8 * time.Second}
		s.usePermit(c, name, fmt.Sprintf("session %d goroutine %d, %s", c.id, i, name), limit,
			upTo(r, bound)+time.Nanosecond, upTo(r, holds[r.IntN(4)])+time.Nanosecond, r)
		time.Sleep(upTo(r, 100*time.Millisecond) + time.Microsecond)
	}
}

// usePermit acquires a permit, holds it and releases it.
func (s *simulation) usePermit(
	c *simClient, name, who string, limit int, bound, hold time.Duration, r *rand.Rand,
) {
	sem, weight := locker.NewSemaphore(c.sess, name, limit), 1+r.IntN(limit)
	acquire := sem.Acquire
	if r.IntN(4) == 0 {
		acquire = sem.TryAcquire
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	start := s.now()
	p, err := acquire(ctx, weight)
	s.checkDuration(who+" acquiring", start, bound+simGiveUp)
	if err != nil {
		return
	}
	h := s.oracle.grantPermit(s, c, name, fmt.Sprintf("%s, weight %d", who, weight), p)
	select {
	case <-p.Done():
	case <-s.hurried(c):
	case <-time.After(hold):
	}
	uctx, cancel := context.WithTimeout(context.Background(), upTo(r, 2*time.Second)+time.Nanosecond)
	defer cancel()
	start = s.now()
	err = p.Release(uctx)
	s.checkDuration(who+" releasing", start, 2*time.Second)
	s.checkRelease(h, err)
}

// resize changes a limit.
func (s *simulation) resize(c *simClient, name string, from, to int, bound time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	_, err := locker.NewSemaphore(c.sess, name, from).Resize(ctx, to)
	s.log(fmt.Sprintf("the limit of %s is to be %d instead of %d: %v", name, to, from, err))
	if err == nil && s.limit(name, math.MaxInt64) != to {
		s.fail("Resize of %s from %d to %d returned nil, and the limit is %d", name, from, to,
			s.limit(name, math.MaxInt64))
	}
}

func acquireOnce(ctx context.Context, c *simClient, name string) (string, error) {
	resp, err := c.link.Client().Get(ctx, limitKey(name))
	if err != nil {
		return "read the limit of", err
	}
	limit := firstLimit
	if len(resp.Kvs) > 0 {
		limit = limitIn(resp.Kvs[0])
	}
	p, err := locker.NewSemaphore(c.sess, name, limit).Acquire(ctx, limit)
	if err != nil {
		return "acquire", err
	}
	return "release", p.Release(ctx)
}

// firstLimit is the limit that the first program names.
const firstLimit = 2

func limitKey(name string) string { return "holdfast/sem/" + name + "/@limit" }

func limitIn(kv *mvccpb.KeyValue) int {
	limit, _, _ := strings.Cut(string(kv.Value), " ")
	n, err := strconv.Atoi(limit)
	if err != nil {
		panic(err)
	}
	return n
}

// limit returns the limit of a semaphore at a revision.
func (s *simulation) limit(name string, at int64) int {
	limit := firstLimit
	for _, c := range s.srv.History(limitKey(name)) {
		if c.Revision <= at {
			limit = limitIn(c.Kv)
		}
	}
	return limit
}

// permitWeight returns the weight that the key of an entry names.
func permitWeight(key string) int {
	weight, _, _ := strings.Cut(key[strings.LastIndexByte(key, '/')+1:], "-")
	n, err := strconv.Atoi(weight)
	if err != nil {
		panic(err)
	}
	return n
}

// grantPermit records an acquisition that has returned.
func (o *oracle) grantPermit(s *simulation, c *simClient, name, who string, p *locker.Permit) *held {
	h := &held{who: who, client: c, lock: p, since: s.now(), key: p.Key(), weight: p.Weight(),
		prefix: p.Key()[:strings.LastIndex(p.Key(), "/")+1]}
	for _, c := range s.srv.History(h.key) {
		if !c.Deleted && c.Revision <= p.AcquiredRevision() {
			h.rev = c.Kv.CreateRevision
		}
	}
	s.log(fmt.Sprintf("%s: granted, %s", who, h.key))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.granted++
	o.checkAdmission(s, name, h, p.AcquiredRevision())
	o.checkHold(s, h)
	o.checkTogether(s, name, h)
	o.all = append(o.all, h)
	return h
}

// checkAdmission checks that the weights of all entries ahead and its own fitted into the limit when a permit was
// granted: when its mark was put, or else, without a wait, when its entry was.
func (o *oracle) checkAdmission(s *simulation, name string, h *held, acquired int64) {
	at := int64(0)
	for _, c := range s.srv.History(h.key) {
		if v, _ := queue.DecodeValue(c.Kv.GetValue()); !c.Deleted && c.Kv.CreateRevision == h.rev && v.Mark != 0 {
			at = c.Revision
			o.marked++
			break
		}
	}
	from, to := at, at
	if at == 0 { // if the reply to its put was lost, the limit was read later
		from, to = h.rev, acquired
	}
	for at := from; at <= to; at++ {
		if s.weightAhead(h, at)+h.weight <= s.limit(name, at) {
			return
		}
	}
	s.fail("%s: granted between revisions %d and %d with %d ahead, limit %d", h.who, from, to, s.weightAhead(h, to),
		s.limit(name, to))
}

// weightAhead returns the weight of all entries ahead of that of h, as they stood at a revision.
func (s *simulation) weightAhead(h *held, at int64) (sum int) {
	standing := make(map[string]int64) // create revisions
	for _, c := range s.srv.History(h.prefix) {
		switch key := string(c.Kv.Key); {
		case c.Revision > at:
		case c.Deleted:
			delete(standing, key)
		default:
			standing[key] = c.Kv.CreateRevision
		}
	}
	for key, rev := range standing {
		if rev < h.rev {
			sum += permitWeight(key)
		}
	}
	return sum
}

// checkTogether checks that a permit that was granted, those held beside it, and those whose holders do not know yet
// that their lease was revoked, do not exceed the highest limit. It leaves out holders that cannot be told, and those
// beside which another holds that queued after the revocation: such a newcomer waits for no lock delay.
func (o *oracle) checkTogether(s *simulation, name string, granted *held) {
	most := firstLimit
	for _, c := range s.srv.History(limitKey(name)) {
		most = max(most, limitIn(c.Kv))
	}
	standing := make(map[int64]bool)
	for _, kv := range s.srv.Keys(granted.prefix) {
		standing[kv.CreateRevision] = true
	}
	sum, newest := granted.weight, granted.rev
	var revoked []*held
	for _, h := range o.all {
		if h.prefix != granted.prefix || h.ended != nil || h.lock.Check() != nil {
			continue
		}
		o.together++
		if standing[h.rev] {
			sum, newest = sum+h.weight, max(newest, h.rev)
		} else {
			revoked = append(revoked, h)
		}
	}
	if sum > most {
		s.fail("%s: with it %d are held, which is more than there ever were, %d", granted.who, sum, most)
	}
	for _, h := range revoked {
		if is, rev, at := s.revokedAt(h); is && rev > newest && time.Duration(h.client.healed.Load()) <= at {
			sum += h.weight
		}
	}
	if sum > most {
		s.fail("%s: granted before a holder was told that its lease was revoked: %d are held, limit %d", granted.who,
			sum, most)
	}
}

// revokePermit revokes the lease of one of several holders, while the others release.
func (s *simulation) revokePermit(r *rand.Rand) {
	entries := s.srv.Keys("holdfast/sem/" + s.names[r.IntN(len(s.names))] + "/@/")
	if len(entries) > 1 {
		s.revokeOneOf(entries[:min(len(entries), 3)], r)
	}
}
