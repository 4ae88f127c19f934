// Package gocronlock_test runs schedulers of gocron as processes, over a real etcd.
package gocronlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

func TestMain(m *testing.M) {
	child.Main(runScheduler)
	leak.Main(m)
}

// Three processes with three clocks: in each slot one runs the job, which takes no time. For the others the slot begins
// when that run is over, and they skip it.
func TestThreeProcessesRunEachSlotOnce(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	all := startThree(t, job{Endpoints: srv.Endpoints(), TTL: 15 * time.Second, MinHold: 6 * time.Second})
	var last event
	for slot := range 2 {
		if slot > 0 {
			awaitFree(t, cli)
		}
		first := all[slot]
		tell(t, first, tick)
		ran := await(t, first, "ran")
		if ran.Token <= last.Token {
			t.Errorf("slot %d: token %v after %v", slot, ran.Token, last.Token)
		}
		last = ran
		for _, c := range all {
			if c == first {
				continue
			}
			tell(t, c, tick)
			if ev := await(t, c, "skipped"); !ev.Held {
				t.Errorf("slot %d: %s skipped with %s", slot, c.Name, ev.Err)
			}
		}
	}
}

// A process that is stopped in a run loses its lock, so another one runs a later slot. When it continues, its run is
// told.
func TestStoppedProcessDoesNotKeepTheJob(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	all := startThree(t, job{Endpoints: srv.Endpoints(), TTL: 3 * time.Second, MinHold: 8 * time.Second})
	a, b := all[0], all[1]
	tell(t, a, tickLong)
	stale := await(t, a, "ran")
	tell(t, b, tick)
	await(t, b, "skipped")
	if err := a.Stop(deadline(t)); err != nil {
		t.Fatal(err)
	}
	awaitFree(t, cli)
	tell(t, b, tick)
	if ran := await(t, b, "ran"); ran.Token <= stale.Token {
		t.Errorf("token %v after %v", ran.Token, stale.Token)
	}
	if err := a.Continue(); err != nil {
		t.Fatal(err)
	}
	if ended := await(t, a, "ended"); !ended.Lost || ended.Token != stale.Token {
		t.Errorf("the stopped run: %+v", ended)
	}
}

// Of three processes the leader runs all slots. When it is killed, another one leads and runs them.
func TestLeaderOfThreeProcessesRunsTheJob(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	all := startThree(t, job{Endpoints: srv.Endpoints(), TTL: 5 * time.Second, Elector: true})
	var last event
	lead := func(leader *child.Child[event], others ...*child.Child[event]) {
		t.Helper()
		tell(t, leader, awaitLead)
		await(t, leader, "leads")
		for range 3 {
			tell(t, leader, tick)
			ran := await(t, leader, "ran")
			if ran.Token < last.Token {
				t.Errorf("token %v after %v", ran.Token, last.Token)
			}
			last = ran
			for _, c := range others {
				tell(t, c, tick)
				await(t, c, "skipped")
			}
		}
	}
	lead(all[0], all[1], all[2])
	before := last
	all[0].Kill()
	lead(all[1], all[2])
	if last.Token <= before.Token {
		t.Errorf("token %v of the second leader, %v of the first", last.Token, before.Token)
	}
}

// startThree starts three processes, each after the former is ready, so that electors campaign in this order.
func startThree(t *testing.T, j job) []*child.Child[event] {
	t.Helper()
	var all []*child.Child[event]
	for _, name := range []string{"A", "B", "C"} {
		c, err := child.Start[event](name, j)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			unexpected := errors.New("the child wrote to stderr")
			if err := child.KillAll(unexpected, c); err != unexpected {
				t.Error(err)
			}
		})
		await(t, c, "ready")
		all = append(all, c)
	}
	return all
}

func tell(t *testing.T, c *child.Child[event], order string) {
	t.Helper()
	if err := c.Tell(order); err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, c *child.Child[event], what string) event {
	t.Helper()
	ev, err := c.Await(deadline(t), what)
	if err != nil {
		t.Fatalf("%v (%+v)", err, ev)
	}
	return ev
}

// awaitFree waits until the job's lock has no entry.
func awaitFree(t *testing.T, cli *clientv3.Client) {
	t.Helper()
	const entries = "holdfast/lock/gocron/report/@/"
	ctx, cancel := context.WithCancel(deadline(t))
	defer cancel()
	resp, err := cli.Get(ctx, entries, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	changes := cli.Watch(ctx, entries, clientv3.WithPrefix(), clientv3.WithRev(resp.Header.Revision+1))
	for resp.Count > 0 {
		if change := <-changes; change.Err() != nil || ctx.Err() != nil {
			t.Fatal("the lock is not released: ", change.Err())
		}
		if resp, err = cli.Get(ctx, entries, clientv3.WithPrefix(), clientv3.WithKeysOnly()); err != nil {
			t.Fatal(err)
		}
	}
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
