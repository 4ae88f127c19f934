package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	elector "github.com/go-co-op/gocron-etcd-elector"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/contrib/gocronlock"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/session"
)

var quiet = slog.New(slog.DiscardHandler)

// A candidate's lease is revoked while it waits. Then the leader resigns.
func candidateWithoutALease(ctx context.Context, l *lab) (outcome, error) {
	cli, err := l.client()
	if err != nil {
		return outcome{}, err
	}
	var elections [3]*concurrency.Election
	var sessions [3]*concurrency.Session
	for i := range elections {
		if sessions[i], err = upstream(cli, 60); err != nil {
			return outcome{}, err
		}
		elections[i] = concurrency.NewElection(sessions[i], "x")
	}
	if err := elections[0].Campaign(ctx, "first"); err != nil {
		return outcome{}, err
	}
	second := in(func() error { return elections[1].Campaign(ctx, "second") })
	if _, err := keys(ctx, cli, "x/", 2); err != nil {
		return outcome{}, err
	}
	if _, err := cli.Revoke(ctx, sessions[1].Lease()); err != nil {
		return outcome{}, err
	}
	if err := elections[0].Resign(ctx); err != nil {
		return outcome{}, err
	}
	if err := (<-second).err; err != nil {
		return heldWith("Campaign returned %v", err)
	}
	now, err := cli.Get(ctx, elections[1].Key())
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
	cli, err := l.client()
	if err != nil {
		return outcome{}, err
	}
	var elections [3]*election.Election
	var sessions [3]*session.Session
	for i := range elections {
		if sessions[i], err = l.open(ctx, cli, session.Options{}); err != nil {
			return outcome{}, err
		}
		elections[i] = election.New(sessions[i], "x")
	}
	first, err := elections[0].Campaign(ctx, "first")
	if err != nil {
		return outcome{}, err
	}
	var term *election.Term
	second := in(func() (err error) { term, err = elections[1].Campaign(ctx, "second"); return err })
	if _, err := keys(ctx, cli, "holdfast/election/x/@/", 2); err != nil {
		return outcome{}, err
	}
	if _, err := cli.Revoke(ctx, sessions[1].Lease()); err != nil {
		return outcome{}, err
	}
	if err := first.Resign(ctx); err != nil {
		return outcome{}, err
	}
	if err := (<-second).err; err != nil {
		return outcome{}, err
	}
	now, err := cli.Get(ctx, term.Key())
	if err != nil {
		return outcome{}, err
	}
	within, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if third, err := elections[2].Campaign(within, "third"); err == nil {
		return failedWith("two lead: tokens %d and %d", term.Token(), third.Token())
	}
	if len(now.Kvs) != 1 || term.Check() != nil {
		return failedWith("Campaign returned a term without a key: %v", term.Check())
	}
	return heldWith("it queued again with a new lease, leads with a key, and no other does")
}

// The wait of a candidate fails: the history that its watch needs has been compacted while it was cut off.
func failedCampaign(ctx context.Context, l *lab) (outcome, error) {
	cli, err := l.client()
	if err != nil {
		return outcome{}, err
	}
	link, cutOff, err := l.link()
	if err != nil {
		return outcome{}, err
	}
	leads, err := upstream(cli, 60)
	if err != nil {
		return outcome{}, err
	}
	waits, err := upstream(cutOff, 60)
	if err != nil {
		return outcome{}, err
	}
	first, second := concurrency.NewElection(leads, "x"), concurrency.NewElection(waits, "x")
	if err := first.Campaign(ctx, "first"); err != nil {
		return outcome{}, err
	}
	campaign := in(func() error { return second.Campaign(ctx, "second") })
	if err := link.Wait(ctx, "Watch", 1); err != nil {
		return outcome{}, err
	}
	link.Cut()
	if err := compact(ctx, l); err != nil {
		return outcome{}, err
	}
	link.Heal()
	if err := (<-campaign).err; err == nil {
		return outcome{}, errors.New("the campaign did not fail")
	}
	now, err := cli.Get(ctx, fmt.Sprintf("x/%x", waits.Lease()))
	if err != nil {
		return outcome{}, err
	}
	if len(now.Kvs) == 0 {
		return heldWith("the campaign failed, and left no key")
	}
	return failedWith("Campaign failed and left its key: when the leader resigns, that key is first, and none leads")
}

func failedCampaignHere(ctx context.Context, l *lab) (outcome, error) {
	cli, err := l.client()
	if err != nil {
		return outcome{}, err
	}
	link, cutOff, err := l.link()
	if err != nil {
		return outcome{}, err
	}
	leads, err := l.open(ctx, cli, session.Options{})
	if err != nil {
		return outcome{}, err
	}
	waits, err := l.open(ctx, cutOff, session.Options{})
	if err != nil {
		return outcome{}, err
	}
	first, err := election.New(leads, "x").Campaign(ctx, "first")
	if err != nil {
		return outcome{}, err
	}
	second := in(func() error { _, err := election.New(waits, "x").Campaign(ctx, "second"); return err })
	if _, err := keys(ctx, cli, "holdfast/election/x/@/", 2); err != nil {
		return outcome{}, err
	}
	link.Cut()
	if err := compact(ctx, l); err != nil {
		return outcome{}, err
	}
	link.Heal()
	if err := first.Resign(ctx); err != nil {
		return outcome{}, err
	}
	if err := (<-second).err; err != nil {
		return failedWith("Campaign failed: %v", err)
	}
	return heldWith("Campaign went on with a new watch, and leads when the leader has resigned")
}

// compact makes changes, and forgets how they came about.
func compact(ctx context.Context, l *lab) error {
	cli, err := l.client()
	if err != nil {
		return err
	}
	if _, err = cli.Put(ctx, "other", "1"); err != nil {
		return err
	}
	resp, err := cli.Put(ctx, "other", "2")
	if err == nil {
		_, err = cli.Compact(ctx, resp.Header.Revision)
	}
	return err
}

// twoSchedulers is for how long a scheduler that was cut off may say that it leads.
const twoSchedulers = 2 * time.Second

// A scheduler that leads is cut off from etcd.
func schedulerCutOff(ctx context.Context, l *lab) (outcome, error) {
	cli, err := l.client()
	if err != nil {
		return outcome{}, err
	}
	link, cutOff, err := l.link()
	if err != nil {
		return outcome{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var ends []<-chan returned
	defer func() {
		cancel()
		link.Heal()
		for _, end := range ends {
			<-end
		}
	}()
	first, err := elector.NewElectorWithClient(ctx, cutOff, elector.WithTTL(2), elector.WithContext(ctx))
	if err != nil {
		return outcome{}, err
	}
	second, err := elector.NewElectorWithClient(ctx, cli, elector.WithTTL(2), elector.WithContext(ctx))
	if err != nil {
		return outcome{}, err
	}
	ends = append(ends, in(func() error { return first.Start("/x") }))
	if err := until(ctx, func() bool { return first.IsLeader(ctx) == nil }); err != nil {
		return outcome{}, err
	}
	ends = append(ends, in(func() error { return second.Start("/x") }))
	if _, err := keys(ctx, cli, "/x/", 2); err != nil {
		return outcome{}, err
	}
	link.BlackHole()
	if err := until(ctx, func() bool { return second.IsLeader(ctx) == nil }); err != nil {
		return outcome{}, err
	}
	return bothLead(ctx, func() bool { return first.IsLeader(ctx) == nil })
}

func schedulerCutOffHere(ctx context.Context, l *lab) (outcome, error) {
	cli, err := l.client()
	if err != nil {
		return outcome{}, err
	}
	link, cutOff, err := l.link()
	if err != nil {
		return outcome{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var electors [2]*gocronlock.Elector
	var ends []<-chan returned
	defer func() {
		cancel()
		link.Heal()
		for _, end := range ends {
			<-end
		}
	}()
	for i := range electors {
		own := cutOff
		if i == 1 {
			own = cli
		}
		sess, err := l.open(ctx, own, session.Options{TTL: 2 * time.Second})
		if err != nil {
			return outcome{}, err
		}
		if electors[i], err = gocronlock.NewElector(election.New(sess, "x"), nil); err != nil {
			return outcome{}, err
		}
		ends = append(ends, in(func() error { return electors[i].Run(ctx) }))
		if _, err := keys(ctx, cli, "holdfast/election/x/@/", i+1); err != nil {
			return outcome{}, err
		}
	}
	if err := until(ctx, func() bool { return electors[0].IsLeader(ctx) == nil }); err != nil {
		return outcome{}, err
	}
	link.BlackHole()
	if err := until(ctx, func() bool { return electors[1].IsLeader(ctx) == nil }); err != nil {
		return outcome{}, err
	}
	return bothLead(ctx, func() bool { return electors[0].IsLeader(ctx) == nil })
}

// bothLead says for how long the first scheduler says that it leads, when the second one does.
func bothLead(ctx context.Context, first func() bool) (outcome, error) {
	began := time.Now()
	if !first() {
		return heldWith("the scheduler that was cut off did not lead any more when the other one did")
	}
	for first() {
		if time.Since(began) > twoSchedulers {
			return failedWith("both schedulers said for more than %v that they lead; it lasts as long as the cut", twoSchedulers)
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return outcome{}, err
		}
	}
	return failedWith("both schedulers said for %v that they lead", ms(time.Since(began)))
}

// until polls until ok returns true.
func until(ctx context.Context, ok func() bool) error {
	for !ok() {
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
