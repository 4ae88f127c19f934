package main

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/election"
)

// campaignsFor is for how long a candidate campaigns again and again.
const campaignsFor = 3 * time.Second

// A candidate cannot renew its lease for longer than that lives, as if commits had stalled on a slow disk. Then it
// campaigns again and again, on the session that it has.
func campaignsForEver(ctx context.Context, l *lab) (outcome, error) {
	sess, err := upstream(l.cutOff, 2)
	if err != nil {
		return outcome{}, err
	}
	if err := l.stallBeyond(ctx, sess.Lease()); err != nil {
		return outcome{}, err
	}
	failures, last := 0, error(nil)
	for began := time.Now(); time.Since(began) < campaignsFor; failures++ {
		within, cancel := context.WithTimeout(ctx, campaignsFor)
		last = concurrency.NewElection(sess, "x").Campaign(within, "a")
		cancel()
		if last == nil {
			return heldWith("it leads after the stall")
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return outcome{}, err
		}
	}
	return failedWith("Campaign failed %d times in %v, and none leads: %v", failures, campaignsFor, last)
}

func campaignsForEverHere(ctx context.Context, l *lab) (outcome, error) {
	sess, err := l.open(ctx, l.cutOff, 2*time.Second)
	if err != nil {
		return outcome{}, err
	}
	el := election.New(sess, "x")
	before, err := el.With(election.Options{Value: "a"}).Campaign(ctx)
	if err != nil {
		return outcome{}, err
	}
	if err := l.stallBeyond(ctx, before.Lease()); err != nil {
		return outcome{}, err
	}
	began := time.Now()
	after, err := el.Campaign(ctx)
	if err != nil {
		return failedWith("Campaign failed: %v", err)
	}
	if after.Lease() == before.Lease() || after.Check() != nil {
		return failedWith("it leads on the lease that has expired")
	}
	return heldWith("it leads %v after the stall, on a new lease of the same session", ms(time.Since(began)))
}

// stallBeyond holds up all that the client which can be cut off sends, until a lease has expired.
func (l *lab) stallBeyond(ctx context.Context, lease clientv3.LeaseID) error {
	l.link.BlackHole()
	defer l.link.Heal()
	for {
		resp, err := l.cli.TimeToLive(ctx, lease)
		if err != nil || resp.TTL < 0 { // 0 is less than a second
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}
