package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	elector "github.com/go-co-op/gocron-etcd-elector"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/contrib/gocronlock"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/session"
)

// A candidate's lease is revoked while it waits. Then the leader resigns.
func candidateWithoutALease(ctx context.Context, l *lab) (outcome, error) {
	var elections [3]*concurrency.Election
	var sessions [3]*concurrency.Session
	for i := range elections {
		sess, err := upstream(l.cli, 60)
		if err != nil {
			return outcome{}, err
		}
		sessions[i], elections[i] = sess, concurrency.NewElection(sess, "x")
	}
	if err := elections[0].Campaign(ctx, "first"); err != nil {
		return outcome{}, err
	}
	second := in(func() error { return elections[1].Campaign(ctx, "second") })
	if err := l.keys(ctx, "x/", 2); err != nil {
		return outcome{}, err
	}
	if _, err := l.cli.Revoke(ctx, sessions[1].Lease()); err != nil {
		return outcome{}, err
	}
	if err := elections[0].Resign(ctx); err != nil {
		return outcome{}, err
	}
	if err := (<-second).err; err != nil {
		return heldWith("Campaign returned %v", err)
	}
	now, err := l.cli.Get(ctx, elections[1].Key())
	if err != nil {
		return outcome{}, err
	}
	if len(now.Kvs) > 0 {
		return heldWith("the candidate leads, with a key")
	}
	if err := elections[2].Campaign(ctx, "third"); err != nil {
		return outcome{}, err
	}
	return failedWith("Campaign returned nil to a candidate that has no key in etcd, and to another one: two lead")
}

func candidateWithoutALeaseHere(ctx context.Context, l *lab) (outcome, error) {
	var elections [3]*election.Election
	var sessions [3]*session.Session
	for i := range elections {
		sess, err := l.open(ctx, l.cli, session.DefaultTTL)
		if err != nil {
			return outcome{}, err
		}
		sessions[i], elections[i] = sess, election.New(sess, "x")
	}
	first, err := elections[0].With(election.Options{Value: "first"}).Campaign(ctx)
	if err != nil {
		return outcome{}, err
	}
	var term *election.Term
	second := in(func() (err error) {
		term, err = elections[1].With(election.Options{Value: "second"}).Campaign(ctx)
		return err
	})
	if err := l.keys(ctx, "holdfast/election/x/@/", 2); err != nil {
		return outcome{}, err
	}
	if _, err := l.cli.Revoke(ctx, sessions[1].Lease()); err != nil {
		return outcome{}, err
	}
	if err := first.Resign(ctx); err != nil {
		return outcome{}, err
	}
	if err := (<-second).err; err != nil {
		return outcome{}, err
	}
	now, err := l.cli.Get(ctx, term.Key())
	if err != nil {
		return outcome{}, err
	}
	within, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if third, err := elections[2].With(election.Options{Value: "third"}).Campaign(within); err == nil {
		return failedWith("two lead: tokens %d and %d", term.Token(), third.Token())
	}
	if len(now.Kvs) != 1 || term.Check() != nil {
		return failedWith("Campaign returned a term without a key: %v", term.Check())
	}
	return heldWith("it queued again with a new lease, leads with a key, and no other does")
}

// The wait of a candidate fails: the history that its watch needs has been compacted while it was cut off.
func failedCampaign(ctx context.Context, l *lab) (outcome, error) {
	waits, leads, err := l.upstreams(60, 60)
	if err != nil {
		return outcome{}, err
	}
	first, second := concurrency.NewElection(leads, "x"), concurrency.NewElection(waits, "x")
	if err := first.Campaign(ctx, "first"); err != nil {
		return outcome{}, err
	}
	campaign := in(func() error { return second.Campaign(ctx, "second") })
	if err := l.link.Wait(ctx, "Watch", 1); err != nil {
		return outcome{}, err
	}
	l.link.Cut()
	if err := compact(ctx, l.cli); err != nil {
		return outcome{}, err
	}
	l.link.Heal()
	if err := (<-campaign).err; err == nil {
		return outcome{}, errors.New("the campaign did not fail")
	}
	now, err := l.cli.Get(ctx, fmt.Sprintf("x/%x", waits.Lease()))
	if err != nil {
		return outcome{}, err
	}
	if len(now.Kvs) == 0 {
		return heldWith("the campaign failed, and left no key")
	}
	return failedWith("Campaign failed and left its key: when the leader resigns, that key is first, and none leads")
}

func failedCampaignHere(ctx context.Context, l *lab) (outcome, error) {
	waits, leads, err := l.sessions(ctx, session.DefaultTTL, session.DefaultTTL)
	if err != nil {
		return outcome{}, err
	}
	first, err := election.New(leads, "x").With(election.Options{Value: "first"}).Campaign(ctx)
	if err != nil {
		return outcome{}, err
	}
	second := in(func() error {
		_, err := election.New(waits, "x").With(election.Options{Value: "second"}).Campaign(ctx)
		return err
	})
	if err := l.keys(ctx, "holdfast/election/x/@/", 2); err != nil {
		return outcome{}, err
	}
	l.link.Cut()
	if err := compact(ctx, l.cli); err != nil {
		return outcome{}, err
	}
	l.link.Heal()
	if err := first.Resign(ctx); err != nil {
		return outcome{}, err
	}
	if err := (<-second).err; err != nil {
		return failedWith("Campaign failed: %v", err)
	}
	return heldWith("Campaign went on with a new watch, and leads when the leader has resigned")
}

// compact makes changes, and forgets how they came about.
func compact(ctx context.Context, cli *clientv3.Client) error {
	if _, err := cli.Put(ctx, "other", "1"); err != nil {
		return err
	}
	resp, err := cli.Put(ctx, "other", "2")
	if err == nil {
		_, err = cli.Compact(ctx, resp.Header.Revision)
	}
	return err
}

// A scheduler that leads is cut off from etcd.
func schedulerCutOff(ctx context.Context, l *lab) (outcome, error) {
	first, err := elector.NewElectorWithClient(ctx, l.cutOff, elector.WithTTL(2), elector.WithContext(ctx))
	if err != nil {
		return outcome{}, err
	}
	second, err := elector.NewElectorWithClient(ctx, l.cli, elector.WithTTL(2), elector.WithContext(ctx))
	if err != nil {
		return outcome{}, err
	}
	l.background(func() error { return first.Start("/x") })
	if err := leads(ctx, first); err != nil {
		return outcome{}, err
	}
	l.background(func() error { return second.Start("/x") })
	if err := l.keys(ctx, "/x/", 2); err != nil {
		return outcome{}, err
	}
	return cutOffScheduler(ctx, l, first, second)
}

func schedulerCutOffHere(ctx context.Context, l *lab) (outcome, error) {
	var electors [2]*gocronlock.Elector
	for i, cli := range []*clientv3.Client{l.cutOff, l.cli} {
		sess, err := l.open(ctx, cli, 2*time.Second)
		if err != nil {
			return outcome{}, err
		}
		if electors[i], err = gocronlock.NewElector(election.New(sess, "x"), gocronlock.ElectorOptions{}); err != nil {
			return outcome{}, err
		}
		l.background(func() error { return electors[i].Run(ctx) })
		if err := l.keys(ctx, "holdfast/election/x/@/", i+1); err != nil {
			return outcome{}, err
		}
	}
	if err := leads(ctx, electors[0]); err != nil {
		return outcome{}, err
	}
	return cutOffScheduler(ctx, l, electors[0], electors[1])
}

// A scheduler says whether it leads: it returns nil then.
type scheduler interface {
	IsLeader(ctx context.Context) error
}

// leads waits until a scheduler says that it leads.
func leads(ctx context.Context, s scheduler) error {
	for s.IsLeader(ctx) != nil {
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// twoSchedulers is for how long a scheduler that was cut off may say that it leads.
const twoSchedulers = 2 * time.Second

// cutOffScheduler cuts off the first scheduler. The outcome is for how long it says that it leads when the second one
// does.
func cutOffScheduler(ctx context.Context, l *lab, first, second scheduler) (outcome, error) {
	l.link.BlackHole()
	if err := leads(ctx, second); err != nil {
		return outcome{}, err
	}
	began := time.Now()
	if first.IsLeader(ctx) != nil {
		return heldWith("the scheduler that was cut off did not lead any more when the other one did")
	}
	for first.IsLeader(ctx) == nil {
		if time.Since(began) > twoSchedulers {
			return failedWith("both schedulers said for more than %v that they lead; it lasts as long as the cut", twoSchedulers)
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return outcome{}, err
		}
	}
	return failedWith("both schedulers said for %v that they lead", ms(time.Since(began)))
}
