package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/tests/internal/family"
)

// administer asks holders to let go, and removes them, over a connection that fails like the others.
func (s *simulation) administer() {
	r := s.source(3)
	if !s.administered || r.IntN(2) == 0 {
		return
	}
	c := &process{id: -1, link: s.srv.Link()}
	c.link.Plan(s.fates(c, 400))
	var mu sync.Mutex // protects jitter
	jitter := s.source(4)
	adm := admin.New(c.link.Client(), admin.Options{
		Owner: "administrator", Auditor: audit.Func(func(context.Context, audit.Record) {}),
		Retry: backoff.Policy{Rand: func() float64 {
			mu.Lock()
			defer mu.Unlock()
			return jitter.Float64()
		}},
	})
	kind := cmp.Or(s.kind, holdfast.KindLock)
	for !s.stop.Load() {
		time.Sleep(family.UpTo(r, s.profile.every) + time.Millisecond)
		name, remove := s.names[r.IntN(len(s.names))], r.IntN(2) == 0
		bound := family.UpTo(r, 10*time.Second) + time.Nanosecond
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		start := s.now()
		q, err := adm.Show(ctx, kind, name)
		if holders := q.Holders(); err == nil && len(holders) > 0 {
			h := holders[r.IntN(len(holders))]
			do := adm.Kick
			if remove {
				do = adm.Remove
			}
			err = do(ctx, kind, name, h.Token, "simulation")
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
