package robustness

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
)

// orders returns the orders for one child: as many locks as terms.
func orders(child, ofEach int, pause time.Duration) (all []order) {
	for i := range ofEach {
		for kind := range kinds {
			all = append(all, order{Kind: kind, Name: fmt.Sprintf("%d-%d", child, i), Pause: pause})
		}
	}
	return all
}

// Scenario 15: the first Check of a process that was paused for longer than its TTL
// reports the loss, and its guarded writes are refused.
func TestHolderPausedPastItsTTLIsLostAndItsWriteIsRefused(t *testing.T) {
	t.Parallel()
	const ofEach = 3
	children := rounds.Of(7, 2)
	srv := etcdtest.Start(t)
	next := open(t, srv.Client(t), session.Options{TTL: 30 * time.Second})
	var pauses durations
	inParallel(children, 4, func(i int) {
		c := startChild(t, srv.Endpoints(), childTTL)
		defer c.Kill()
		all := orders(i, ofEach, childTTL)
		held := make([]childEvent, len(all))
		for j, o := range all {
			c.order(t, o)
			held[j] = c.expect(t, o.Kind, o.Name, "holds")
		}
		c.pause(t)
		after := make([]hold, len(all))
		var acquiring sync.WaitGroup
		for j, o := range all {
			acquiring.Go(func() {
				var err error
				if after[j], err = kinds[o.Kind](deadline(t), next, o.Name, "next"); err != nil {
					t.Error(err)
				}
			})
		}
		acquiring.Wait()
		c.resume(t)
		for j, o := range all {
			ev := c.expect(t, o.Kind, o.Name, "checked")
			pauses.add(ev.Pause)
			if ev.Check != "lost" || ev.Writer != "lost" || ev.Etcd != "stale" || ev.Cause != "lost" {
				t.Errorf("%s %s: after a pause of %v the old holder reported %+v", o.Kind, o.Name, ev.Pause, ev)
			}
			if after[j] != nil && after[j].Token() <= held[j].Token {
				t.Errorf("%s %s: token %v after %v", o.Kind, o.Name, after[j].Token(), held[j].Token)
			}
			if kvs := srv.Keys(t, o.Name+"/data"); len(kvs) != 0 {
				t.Errorf("%s: etcd executed the stale write: %v", o.Name, kvs)
			}
		}
	})
	p := pauses.sorted()
	t.Logf("%d rounds, paused for %v to %v", len(p), p[0], p[len(p)-1])
}

// Scenario 16: a process that was paused for less than its TTL by etcd's clock still
// holds. It may have been suspended.
func TestHolderPausedWithinItsTTLStillHolds(t *testing.T) {
	t.Parallel()
	const ofEach, ttl = 3, 6 * time.Second
	children := rounds.Of(7, 2)
	srv := etcdtest.Start(t)
	next := open(t, srv.Client(t), session.Options{TTL: 60 * time.Second})
	cli := srv.Client(t)
	var pauses durations
	var mu sync.Mutex // protects results
	results := make(map[string]int)
	inParallel(children, 4, func(i int) {
		c := startChild(t, srv.Endpoints(), ttl)
		defer c.Kill()
		// When the process is paused, its last renewal is at most three eighths of the
		// trusted time old. So the pause lasts at least a sixth of the TTL.
		all := orders(i, ofEach, ttl/8)
		held := make([]childEvent, len(all))
		waiting := make([]<-chan hold, len(all))
		for j, o := range all {
			c.order(t, o)
			held[j] = c.expect(t, o.Kind, o.Name, "holds")
			waiting[j] = holdLater(t, o.Kind, next, o.Name)
			srv.WaitForKeys(t, "holdfast/"+o.Kind+"/"+o.Name+"/@/", 2)
		}
		c.pause(t)
		await(t, "more than half of the TTL has passed", func() bool {
			resp, err := cli.TimeToLive(deadline(t), held[0].Lease)
			if err != nil || resp.TTL <= 0 {
				t.Errorf("TimeToLive: %v, %v", resp, err)
				return true
			}
			return time.Duration(resp.TTL)*time.Second < ttl/2
		})
		c.resume(t)
		for j, o := range all {
			ev := c.expect(t, o.Kind, o.Name, "checked")
			pauses.add(ev.Pause)
			mu.Lock()
			results[ev.Check]++
			mu.Unlock()
			if ev.Check == "lost" || ev.Writer != "ok" || ev.Token != held[j].Token ||
				slices.Contains(ev.States, holdfast.Lost) {
				t.Errorf("%s %s: after a pause of %v the holder reported %+v", o.Kind, o.Name, ev.Pause, ev)
			}
			if n := len(ev.States); n > 0 && ev.States[n-1] != holdfast.Connected {
				t.Errorf("%s %s: states %v", o.Kind, o.Name, ev.States)
			}
			c.expect(t, o.Kind, o.Name, "released")
			if h := <-waiting[j]; h != nil && h.Token() <= held[j].Token {
				t.Errorf("%s %s: token %v after %v", o.Kind, o.Name, h.Token(), held[j].Token)
			}
		}
	})
	p := pauses.sorted()
	t.Logf("%d rounds, paused for %v to %v; results of the first Check: %v", len(p), p[0], p[len(p)-1], results)
}

// holdLater starts to acquire a name and returns a channel that receives the hold, or
// nil if that fails.
func holdLater(t *testing.T, kind string, sess *session.Session, name string) <-chan hold {
	t.Helper()
	got := make(chan hold, 1)
	go func() { // ends by its deadline
		h, err := kinds[kind](throughout(t), sess, name, "later")
		if err != nil {
			t.Errorf("%s %s: %v", kind, name, err)
		}
		got <- h
	}()
	return got
}
