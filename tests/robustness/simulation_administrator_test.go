package robustness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/queue"
)

// administer asks holders to let go, and removes them, over a connection that fails like the others.
func (s *simulation) administer() {
	r := s.source(3)
	if !s.administered || r.IntN(2) == 0 {
		return
	}
	c := &simClient{id: -1, link: s.srv.Link()}
	c.link.Plan(s.fates(c, 400))
	var mu sync.Mutex // protects jitter
	jitter := s.source(4)
	adm := admin.New(c.link.Client(), &admin.Options{Owner: "administrator", Auditor: unrecorded, Retry: backoff.Policy{
		Attempt: simAttempt, Rand: func() float64 {
			mu.Lock()
			defer mu.Unlock()
			return jitter.Float64()
		},
	}})
	for !s.stop.Load() {
		time.Sleep(upTo(r, s.profile.every) + time.Millisecond)
		name, remove := s.names[r.IntN(len(s.names))], r.IntN(2) == 0
		bound := upTo(r, 10*time.Second) + time.Nanosecond
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		start := s.now()
		q, err := adm.Show(ctx, admin.Lock, name)
		if holders := q.Holders(); err == nil && len(holders) > 0 {
			h := holders[r.IntN(len(holders))]
			do := adm.Kick
			if remove {
				do = adm.Remove
			}
			err = do(ctx, admin.Lock, name, h.Token, "simulation")
			s.log(fmt.Sprintf("administrator: %s, token %v, removal %v: %v", name, h.Token, remove, err))
			var failed *admin.HolderError
			if err != nil && !errors.As(err, &failed) && ctx.Err() == nil && !errors.Is(err, holdfast.ErrOutcomeUnknown) {
				s.fail("administrator: %v", err)
			}
			if errors.Is(err, admin.ErrNotTold) {
				s.fail("administrator: %v", err)
			}
		}
		s.checkDuration("the administrator", start, bound)
		cancel()
	}
}

// wasMoved reports whether the entry of h was on the lease of an administrator when it was deleted.
func (s *simulation) wasMoved(h *held) bool {
	session, _ := queue.LeaseOf(string(h.deletion.Kv.Key))
	return clientv3.LeaseID(h.deletion.Prev.Lease) != session
}

// checkNotice checks that a holder finds a notice in its entry within two seconds while its connection works.
func (s *simulation) checkNotice(h *held, value []byte, check error) {
	v, ok := queue.DecodeValue(value)
	if !ok || !v.Notice.Given() || check != nil {
		return
	}
	since := max(v.Notice.At.Sub(s.begin), time.Duration(h.client.healed.Load()), h.since)
	if d := s.now() - since; d > forcedLossLimit {
		s.fail("%s: Check returns %v, %v after an administrator asked it to let go", h.who, check, d)
	}
}

// couldBeTold reports whether the holder of an entry that was moved had two seconds to be told before the entry was
// deleted: the notice stood, and its connection worked and was fast. An attempt that does not hold yet must find the
// notice before it does, unless it is told of it in time.
func (s *simulation) couldBeTold(h *held) bool {
	for _, c := range s.srv.History(string(h.deletion.Kv.Key)) {
		v, ok := queue.DecodeValue(c.Kv.GetValue())
		if ok && !c.Deleted && c.Kv.CreateRevision == h.rev && v.Notice.Given() {
			since := max(c.At.Sub(s.begin), time.Duration(h.client.healed.Load()))
			return s.profile.latency <= 50*time.Millisecond && h.deletion.At.Sub(s.begin)-since > 2*time.Second
		}
	}
	return false
}
