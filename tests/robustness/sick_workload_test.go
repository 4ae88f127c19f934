//go:build linux

package robustness

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
)

// sickTTLs are the TTLs of the sessions in TestSickMinorityLosesAndSuspendsNoSession.
var sickTTLs = []time.Duration{15 * time.Second, 5 * time.Second}

// workload runs sessions and bare clients on a faultyCluster.
type workload struct {
	p       *faultyCluster
	ctx     context.Context
	cancel  context.CancelFunc
	all     []*sessionStats
	running sync.WaitGroup
	bare    []*maxDuration // how long the operations of bare clients take
}

// sessionStats is one session and what the test observes of it.
type sessionStats struct {
	sess            *session.Session
	ttl             time.Duration
	lost, suspended atomic.Int64
	unconfirmed     time.Duration // maximum of unconfirmed
	lock, unlock    maxDuration
	trace           rpcTrace
	pause           time.Duration // between two locks; 0 if the session is idle
}

func (p *faultyCluster) newWorkload(t *testing.T) *workload {
	ctx, cancel := context.WithCancel(context.Background())
	w := &workload{p: p, ctx: ctx, cancel: cancel}
	t.Cleanup(w.end)
	return w
}

// settle waits until each client has had three replies.
func (w *workload) settle(t *testing.T) {
	t.Helper()
	const answers = 3
	for _, took := range w.bare {
		await(t, "bare clients have answers", func() bool { return took.times.Load() >= answers })
	}
	for _, b := range w.all {
		if b.pause > 0 {
			await(t, "locks are taken", func() bool { return b.unlock.times.Load() >= answers })
		}
	}
}

func (w *workload) end() {
	w.cancel()
	w.running.Wait()
}

// add opens a session. If pause is 0, it holds one lock; otherwise it acquires and
// releases a lock again and again, with that pause between.
func (w *workload) add(t *testing.T, ttl, pause time.Duration) {
	t.Helper()
	b := &sessionStats{ttl: ttl, pause: pause}
	cli := w.p.client(t, append(b.trace.options(), w.p.links[0].DialOptions()...)...) // the link counts its RPCs
	b.sess = open(t, cli, session.Options{TTL: ttl, OnStateChange: func(ev session.Event) {
		switch {
		case w.ctx.Err() != nil: // the test is ending
		case ev.State == holdfast.Lost:
			b.lost.Add(1)
			t.Logf("TTL %v: %v; its requests before that:%s", ttl, ev.Err, b.trace.since(time.Now().Add(-ttl)))
		case ev.State == holdfast.Suspended:
			b.suspended.Add(1)
		}
	}})
	mu := locker.NewMutex(b.sess, fmt.Sprint("lock-", len(w.all)))
	if pause > 0 {
		w.running.Go(func() { b.work(w.ctx, mu, t.Logf) })
	} else if _, err := mu.Lock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	w.all = append(w.all, b)
}

// addBare starts n clients without this module, for comparison. Each calls op again and again, with a pause after each
// success.
func (w *workload) addBare(t *testing.T, n int, pause time.Duration, op bareOp) {
	t.Helper()
	for i := range n {
		cli, took := w.p.client(t), new(maxDuration)
		w.bare = append(w.bare, took)
		w.running.Go(func() { runBare(w.ctx, cli, fmt.Sprint("bare-", i), pause, op, took) })
	}
}

// work acquires and releases a lock until ctx ends.
func (b *sessionStats) work(ctx context.Context, mu *locker.Mutex, logf func(string, ...any)) {
	tick := time.NewTicker(b.pause)
	defer tick.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		lk, err := mu.Lock(ctx)
		if err == nil {
			locked := time.Now()
			b.lock.add(locked.Sub(began))
			if err = lk.Unlock(ctx); err == nil {
				b.unlock.add(time.Since(locked))
			}
			if time.Since(began) > *sickTrace {
				logf("%v: Lock took %v, Unlock %v (%v):%s", b.ttl, locked.Sub(began), time.Since(locked), err, b.trace.since(began))
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// sickReport is the result of observing the sessions of a workload.
type sickReport struct {
	lost, suspended int64
	bare            time.Duration      // the longest operation of a bare client
	rates           map[string]float64 // requests per session and second by method
}

// observe samples the sessions for d, ends the workload, and logs and returns the
// result.
func (w *workload) observe(t *testing.T, d time.Duration) sickReport {
	t.Helper()
	o := sickReport{rates: make(map[string]float64)}
	before, began := w.p.links[0].Count(), time.Now()
	end := time.NewTimer(d)
	defer end.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for done := false; !done; {
		select {
		case <-tick.C:
			for _, b := range w.all {
				b.unconfirmed = max(b.unconfirmed, unconfirmed(b.sess))
			}
		case <-end.C:
			done = true
		}
	}
	sent, took := w.p.links[0].Count().Since(before), time.Since(began)
	w.end()
	var report strings.Builder
	var ttls []time.Duration
	for _, b := range w.all {
		if !slices.Contains(ttls, b.ttl) {
			ttls = append(ttls, b.ttl)
		}
	}
	for _, kind := range []string{"busy", "idle"} {
		for _, ttl := range ttls {
			n, lost, suspended := 0, int64(0), int64(0)
			var unconfirmed time.Duration
			var lock, unlock maxDuration
			for _, b := range w.all {
				if b.ttl != ttl || (b.pause > 0) != (kind == "busy") {
					continue
				}
				n++
				lost, suspended = lost+b.lost.Load(), suspended+b.suspended.Load()
				unconfirmed = max(unconfirmed, b.unconfirmed)
				lock.merge(&b.lock)
				unlock.merge(&b.unlock)
			}
			if n == 0 {
				continue
			}
			fmt.Fprintf(&report, "\n%d %s sessions of %v: %d lost, %d suspensions, longest without a confirmation %v",
				n, kind, ttl, lost, suspended, unconfirmed)
			if kind == "busy" {
				fmt.Fprintf(&report, "; longest Lock %v, Unlock %v", &lock, &unlock)
			}
			o.lost += lost
			// A session of 5 s is suspended after 2.25 s without a confirmation. In a
			// short run the machine is busy with other tests and may take that long itself.
			if rounds.Campaign() || *sickFor >= time.Minute || ttl >= session.DefaultTTL {
				o.suspended += suspended
			}
		}
	}
	var bare maxDuration
	for _, took := range w.bare {
		bare.merge(took)
	}
	o.bare = time.Duration(bare.longest.Load())
	if len(w.bare) > 0 {
		fmt.Fprintf(&report, "\nlongest operation of a bare client %v", &bare)
	}
	for method, n := range sent {
		o.rates[method] = float64(n) / float64(len(w.all)) / took.Seconds()
		fmt.Fprintf(&report, "\n%s: %.2f per session and second", method, o.rates[method])
	}
	t.Logf("%v:%s", took.Round(time.Second), report.String())
	return o
}

// A bareOp is an operation of etcd's client alone.
type bareOp func(ctx context.Context, cli *clientv3.Client, key string) error

func barePut(ctx context.Context, cli *clientv3.Client, key string) error {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	_, err := cli.Put(ctx, key, "")
	return err
}

func bareRead(ctx context.Context, cli *clientv3.Client, key string) error {
	_, err := cli.Get(ctx, key)
	return err
}

// runBare calls op until ctx ends. An operation that has no reply by then counts with the time that has passed.
func runBare(ctx context.Context, cli *clientv3.Client, key string, pause time.Duration, op bareOp, took *maxDuration) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		for op(ctx, cli, key) != nil && ctx.Err() == nil {
		}
		took.add(time.Since(began))
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// maxDuration is the number and the maximum of durations.
type maxDuration struct {
	times   atomic.Int64
	longest atomic.Int64
}

func (s *maxDuration) add(d time.Duration) {
	s.times.Add(1)
	for {
		was := s.longest.Load()
		if int64(d) <= was || s.longest.CompareAndSwap(was, int64(d)) {
			return
		}
	}
}

func (s *maxDuration) merge(other *maxDuration) {
	s.times.Add(other.times.Load())
	s.longest.Store(max(s.longest.Load(), other.longest.Load()))
}

func (s *maxDuration) String() string {
	return fmt.Sprintf("%v of %d", time.Duration(s.longest.Load()).Round(time.Millisecond), s.times.Load())
}
