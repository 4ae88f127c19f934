package main

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// slowCommit is what etcd itself warns of.
const slowCommit = 100 * time.Millisecond

// leastTTL is the smallest TTL that a check recommends.
const leastTTL = 5 * time.Second

// times measures what a lock costs, and what a renewal takes, and judges the TTL by it.
func (c *checker) times(ctx context.Context, timeout time.Duration) {
	commit, err := c.measure(ctx, timeout, func(ctx context.Context) (time.Duration, error) {
		return need{layout.SessionKeys(c.namespace), true, "readwrite"}.probe(ctx, c.cli)
	})
	switch {
	case c.refusedFull(err):
	case exitCode(err) == exitDenied:
		c.info("commit", "cannot be measured by a user that may not write "+layout.SessionKeys(c.namespace))
	case err != nil:
		c.fail("commit", fmt.Sprintf("cannot be measured: %v", err), "")
	default:
		median, worst := spread(commit)
		detail := fmt.Sprintf("median %s, slowest of %d %s", ms(median), len(commit), ms(worst))
		if median > slowCommit {
			c.warn("commit", detail, "Each lock and each hand-over takes one or two of them. As a rule it is the disk: look at "+
				"etcd_disk_wal_fsync_duration_seconds, then at the network between members.")
		} else {
			c.ok("commit", "%s", detail)
		}
	}

	least, renewal, err := c.renewals(ctx, timeout)
	switch {
	case c.refusedFull(err):
		return
	case exitCode(err) == exitDenied:
		c.info("renewal", "cannot be measured by a user that may not read "+names.EpochKey(c.namespace))
		return
	case err != nil:
		c.fail("renewal", fmt.Sprintf("cannot be measured: %v", err), "")
		return
	}
	median, worst := spread(renewal)
	detail := fmt.Sprintf("median %s, slowest of %d %s", ms(median), len(renewal), ms(worst))
	if bears := c.trusted() / 4; worst > bears {
		c.fail("renewal", detail, fmt.Sprintf("Beyond %v a session with a TTL of %v is suspended at each renewal. Choose a "+
			"TTL of at least %v, or find out why etcd is slow.", bears, c.ttl, lease.TTLFor(worst)))
	} else {
		c.ok("renewal", "%s", detail)
	}
	c.adviseTTL(least, worst)
}

func (c *checker) trusted() time.Duration { return c.ttl - max(c.ttl/10, 200*time.Millisecond) }

// adviseTTL compares the TTL with the least that etcd grants, which is one and a half election timeouts, and with the
// slowest renewal.
func (c *checker) adviseTTL(least, worst time.Duration) {
	// A new leader is elected within two election timeouts, as a rule. Half of the trusted time should outlast that. Below
	// leastTTL pauses of this machine cost locks.
	wanted := max(leastTTL, 3*least, lease.TTLFor(worst))
	detail := fmt.Sprintf("%v; etcd grants %v at least, and the locks of a machine that vanished can be held again "+
		"within %v, with the default lock delay", c.ttl, least, succeeds(max(c.ttl, least)))
	if c.ttl < wanted {
		c.warn("TTL", detail, fmt.Sprintf("Choose at least %v, so that neither slow renewals nor a change of etcd's leader "+
			"cost a lock.", wanted))
		return
	}
	c.ok("TTL", "%s; %v would do, too", detail, wanted)
}

// succeeds tells within what time of a dead process's last renewal its successor holds: etcd ends a lease up to half a
// second late, and then the successor waits for its session.Options.LockDelay, which is 2 s unless it is set.
func succeeds(ttl time.Duration) time.Duration { return ttl + 500*time.Millisecond + 2*time.Second }

// renewals returns the least TTL that etcd grants, and how long renewals took, each beside a read that proves it, as a
// session sends them.
func (c *checker) renewals(
	ctx context.Context, timeout time.Duration,
) (least time.Duration, took []time.Duration, err error) {
	granting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	granted, err := c.cli.Grant(granting, 1)
	if err != nil {
		return 0, nil, withConnection(c.cli, err)
	}
	defer func() {
		ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		_, _ = c.cli.Revoke(ended, granted.ID) // else it goes with its TTL
	}()
	took, err = c.measure(ctx, timeout, func(ctx context.Context) (time.Duration, error) {
		begun := time.Now()
		var read error
		var reading sync.WaitGroup
		reading.Go(func() { _, read = c.cli.Get(ctx, names.EpochKey(c.namespace), clientv3.WithCountOnly()) })
		_, err := c.cli.KeepAliveOnce(ctx, granted.ID)
		reading.Wait()
		return time.Since(begun), withConnection(c.cli, cmp.Or(err, read))
	})
	return time.Duration(granted.TTL) * time.Second, took, err
}

// measure measures as often as --samples says.
func (c *checker) measure(
	ctx context.Context, timeout time.Duration, once func(context.Context) (time.Duration, error),
) (took []time.Duration, err error) {
	for range c.samples {
		asked, cancel := context.WithTimeout(ctx, timeout)
		d, err := once(asked)
		cancel()
		if err != nil {
			return nil, err
		}
		took = append(took, d)
	}
	return took, nil
}

// withConnection adds to an error why there is no connection.
func withConnection(cli *clientv3.Client, err error) error {
	if err == nil {
		return nil
	}
	return retry.WithConnection(cli.ActiveConnection(), err)
}
