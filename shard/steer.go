package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/member"
)

// Capacity is what a member takes of the shards: its weight beside others, its limit, its zone, and whether it is out
// of service.
type Capacity = member.Capacity

// ErrNotRunning is Update's error if no Run goes on.
var ErrNotRunning = errors.New("this process does not run the shards: Run begins with the capacity of Options")

// Update replaces the capacity of the running member: all of it. It returns when etcd has confirmed the new one. Shards
// move afterwards, and are handed over in order. Update is for each Run of these shards and their copies; the next Run
// begins with Options.Capacity again.
//
// Errors: a *holdfast.ArgumentError before anything is sent; ErrNotRunning; holdfast.ErrClosed; ctx's: then the
// capacity is put all the same, as soon as etcd can be reached.
func (s *Shards) Update(ctx context.Context, c Capacity) error {
	switch {
	case s == nil || s.here == nil:
		return s.updating(&holdfast.ArgumentError{Argument: "receiver", Reason: "is a zero value: make it with New"})
	case ctx == nil:
		return s.updating(&holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"})
	}
	if err := c.Validate("c"); err != nil {
		return s.updating(err)
	}
	running := s.here.members.now()
	if len(running) == 0 {
		return s.updating(ErrNotRunning)
	}
	var failed error
	for _, m := range running {
		failed = errors.Join(failed, m.SetCapacity(ctx, c))
	}
	return s.updating(failed)
}

func (s *Shards) updating(err error) error {
	if err == nil || s == nil {
		return err
	}
	return fmt.Errorf("update the capacity of shards %s: %w", names.Quote(s.name), err)
}

// leftOver returns how many shards no member has room for.
func leftOver(assigned []string) (count int) {
	for _, owner := range assigned {
		if owner == "" {
			count++
		}
	}
	return count
}

// renewDrained is how often a drained member renews the lease of its drain, which is one of layout.DrainedFor. So a
// drain ends when its member has been gone for an hour, or up to 15 minutes more.
const renewDrained = 15 * time.Minute

// renewal keeps the lease of an operator's drain of this member.
type renewal struct {
	lease clientv3.LeaseID
	end   context.CancelFunc // nil: the member is not drained
}

// keepDrained renews the lease of this member's drain, as long as the drain stands.
func (r *run) keepDrained(drained []member.Drain) {
	lease := clientv3.NoLease
	if at := slices.IndexFunc(drained, func(d member.Drain) bool { return d.Member == r.member.Name() }); at >= 0 {
		lease = drained[at].Lease
	}
	if lease == r.drained.lease {
		return
	}
	if r.drained.end != nil {
		r.drained.end()
	}
	r.drained = renewal{lease: lease}
	if lease == clientv3.NoLease {
		return
	}
	var ctx context.Context
	ctx, r.drained.end = context.WithCancel(r.functions)
	r.workers.Go(func() { r.renew(ctx, lease) }) // joined by leave
}

func (r *run) renew(ctx context.Context, lease clientv3.LeaseID) {
	for {
		pause, err := renewDrained, r.shards.host.Renew(ctx, lease)
		switch {
		case ctx.Err() != nil, etcderr.Classify(err) == etcderr.LeaseGone: // the watch tells it, too
			return
		case err != nil:
			pause /= 15
			r.shards.log().Warn("holdfast: what has taken this member out of service was not renewed; trying again; it is "+
				"back in service when the lease has ended", "member", r.member.Name(), "lease", names.Lease(lease), "error", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}
