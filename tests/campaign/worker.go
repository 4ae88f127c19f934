//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/family"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// The kinds of holds that a worker has beside those of package family.
const (
	permitKind = family.Kinds + iota
	minHoldKind
	leaderKind
	allKinds             // that a goroutine draws
	shardKind = allKinds // what a worker owns meanwhile
)

// What kinds are called in the report.
var kindNames = [allKinds + 1]string{"writer", "reader", "set", "tree lock", "downgradable lock, or its reader",
	"permit", "writer with MinHold", "leadership", "shard"}

// reports is the kind of event that package child carries here.
const reports = "reports"

// A worker is a process that acquires locks of all kinds, and reports what it observes of them.
type worker struct {
	job
	teller
	cli    *clientv3.Client
	sess   *session.Session
	former *session.Session // of holders that meet newcomers
	stop   context.Context
	keep   atomic.Bool // holds are not released
	calm   atomic.Bool // shards are held until they move
	writes sync.WaitGroup
}

func runWorker(ctx context.Context, _ string, j job, parent *child.Parent[event]) error {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if j.Sets != "" {
		return runAdder(ctx, j, parent)
	}
	log, err := os.Create(j.Log)
	if err != nil {
		return err
	}
	defer log.Close()
	cli, err := connect(j.Endpoints, j.Prefix, j.User)
	if err != nil {
		return err
	}
	system := session.SystemClock()
	tell := teller{parent, processOf(j.ID)}
	observed := lease.Observe(ctx, func(s lease.Step) {
		if s.Key != "" {
			tell.say(event{What: stepped, Step: s})
			return
		}
		tell.say(event{What: renewed, Renewal: said{s, tell.process, sinceBoot()}})
	})
	options := session.Options{
		TTL: j.TTL, CloseTimeout: 20 * time.Second, Logger: slog.New(slog.NewJSONHandler(log, nil)),
		Clock: func() time.Duration { return time.Duration(float64(system()) * j.ClockRate) },
	}
	sess, err := newSession(observed, cli, options)
	if err != nil {
		return err
	}
	former, err := newSession(observed, cli, options)
	if err != nil {
		return err
	}
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &worker{job: j, teller: tell, cli: cli, sess: sess, former: former, stop: stop}
	defer w.reportStalls(ctx)()
	var all sync.WaitGroup
	for g := range j.Goroutines {
		all.Go(func() { w.work(g) })
	}
	all.Go(w.ownShards)
	all.Go(w.lockUpstream)
	all.Go(w.meetNewcomers)
	for message := ""; message != "end"; {
		if message, err = parent.Hear(ctx); err != nil {
			return err
		}
		if message == "crowd" {
			w.comeAsCrowd(&all)
			continue
		}
		w.keep.Store(message == "keep")
		w.calm.Store(message == "calm")
	}
	cancel()
	all.Wait()
	err = former.Close(ctx)
	w.say(event{What: closed, Who: j.ID, Err: text(err)})
	w.writes.Wait()
	w.recover(ctx)
	err = sess.Close(ctx)
	w.say(event{What: closed, Who: j.ID, Err: text(err)})
	return nil // the client ends with the process: its Close may hang if the role was withdrawn while it watched
}

// recover acquires each name when all faults have been healed. A busy machine may be too slow for a lease of two
// seconds, and loses it; then the next lease must do.
func (w *worker) recover(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, name := range w.Names {
		what, err := w.acquireEach(ctx, name)
		for errors.Is(err, holdfast.ErrLost) && ctx.Err() == nil {
			what, err = w.acquireEach(ctx, name)
		}
		if err != nil {
			w.say(event{What: cannot, Who: w.ID, Err: fmt.Sprintf("%s %s: %v", what, name, err)})
		}
	}
}

// acquireEach acquires and releases a name in all ways.
func (w *worker) acquireEach(ctx context.Context, name string) (what string, err error) {
	if what, err = family.Once(ctx, w.sess, name); err != nil {
		return what, err
	}
	return "acquire", w.acquireAll(ctx, name)
}

// acquireAll acquires and releases all permits of a semaphore.
func (w *worker) acquireAll(ctx context.Context, name string) error {
	sem, limit, err := w.semaphore(ctx, name)
	if err != nil {
		return err
	}
	permit, err := sem.Acquire(ctx, limit)
	if err != nil {
		return err
	}
	return permit.Release(ctx)
}

// semaphore returns a semaphore with its present limit.
func (w *worker) semaphore(ctx context.Context, name string) (*locker.Semaphore, int, error) {
	sem := locker.NewSemaphore(w.sess, name, oracle.FirstLimit)
	limit, err := sem.Limit(ctx)
	if err != nil || limit == 0 {
		return sem, oracle.FirstLimit, err
	}
	return locker.NewSemaphore(w.sess, name, limit), limit, nil
}

func (w *worker) work(g int) {
	r := rand.New(rand.NewPCG(w.Seed, uint64(g)))
	for call := 0; w.stop.Err() == nil; call++ {
		w.call(fmt.Sprintf("%s goroutine %d call %d", w.ID, g, call), r)
		pauseFor(w.stop, family.UpTo(r, 100*time.Millisecond))
	}
}

// call acquires a lock, holds it and releases it.
func (w *worker) call(who string, r *rand.Rand) {
	kind := family.Kind(r.IntN(int(allKinds)))
	if kind == minHoldKind && r.IntN(4) > 0 { // the name stays taken for seconds
		kind = family.Writer
	}
	bounds := []time.Duration{100 * time.Millisecond, 3 * time.Second, 15 * time.Second, 40 * time.Second}
	ctx, cancel := context.WithTimeout(w.stop, family.UpTo(r, bounds[r.IntN(len(bounds))]))
	defer cancel()
	try := kind == family.Writer && r.IntN(3) == 0
	acquire, parts, minHold := w.draw(ctx, kind, who, try, r)
	if acquire == nil {
		return
	}
	w.say(event{What: wants, Who: who, Parts: parts, callReport: callReport{Try: try}})
	lk, err := acquire(ctx)
	if err != nil {
		w.sayFailed(who, kind, try, err)
		return
	}
	holds := []time.Duration{5 * time.Millisecond, 50 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second}
	hold := family.UpTo(r, holds[r.IntN(len(holds))])
	began := event{What: held, Who: who, Kind: kind, callReport: callReport{MinHold: minHold}}
	end := w.hold(began, lk, parts, hold, nil, r)
	if lk, ok := lk.(*locker.DowngradableLock); ok && r.IntN(2) == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if rd, err := lk.Downgrade(ctx); err == nil {
			end.Downgraded = true
			w.say(end)
			w.unlock(w.hold(began, rd, []oracle.Part{{Prefix: parts[0].Prefix, Shared: true}}, hold, nil, r), rd, r)
			return
		}
	}
	if d, ok := lk.(family.Detachable); ok && mayBeDetached(kind, lk, minHold) && r.IntN(4) == 0 {
		w.handOver(end, d, parts, r)
		return
	}
	w.unlock(end, lk, r)
}

// draw returns how to acquire a lock of a kind, or nil if that is not to be acquired now.
func (w *worker) draw(ctx context.Context, kind family.Kind, who string, try bool, r *rand.Rand) (
	acquire family.Acquire, parts []oracle.Part, minHold time.Duration,
) {
	name := w.Names[r.IntN(len(w.Names))]
	switch {
	case try:
		mu := locker.NewMutex(w.sess, name).With(locker.Options{Owner: who})
		return family.Mutex(mu, true), []oracle.Part{oracle.LockPart(name, false)}, 0
	case kind == permitKind:
		sem, limit, err := w.semaphore(ctx, name)
		if err != nil {
			return nil, nil, 0
		}
		if name == w.Names[len(w.Names)-1] && r.IntN(4) == 0 {
			_ = sem.Resize(ctx, 1+r.IntN(4))
			return nil, nil, 0
		}
		sem = sem.With(locker.Options{Owner: who})
		return family.Permit(sem, 1+r.IntN(limit), false), []oracle.Part{oracle.PermitPart(name)}, 0
	case kind == minHoldKind:
		minHold = family.UpTo(r, 2*time.Second) + time.Nanosecond
		mu := locker.NewMutex(w.sess, name).With(locker.Options{MinHold: minHold, Owner: who})
		return family.Mutex(mu, r.IntN(4) == 0), []oracle.Part{oracle.LockPart(name, false)}, byOthers(minHold, w.ClockRate)
	case kind == leaderKind:
		parts := []oracle.Part{oracle.ElectionPart(name)}
		if r.IntN(2) == 0 {
			return w.leadWithin(name, who), parts, 0
		}
		return func(ctx context.Context) (family.Lock, error) {
			term, err := election.New(w.sess, name).With(election.Options{Value: who}).Campaign(ctx)
			if err != nil {
				return nil, err
			}
			return leadership{term}, nil
		}, parts, 0
	case kind == family.Writer && r.IntN(2) == 0:
		return w.lockWithin(name, who), []oracle.Part{oracle.LockPart(name, false)}, 0
	}
	acquire, parts = family.Draw(w.sess, w.Names, r, kind, who)
	return acquire, parts, 0
}

// byOthers returns how long MinHold is at least, by a clock that is right: the session counts it by its own, which may
// be fast.
func byOthers(minHold time.Duration, rate float64) time.Duration {
	return min(minHold, time.Duration(float64(minHold)/rate))
}

// leadership is a Term with the method that releases a lock.
type leadership struct{ *election.Term }

func (l leadership) Unlock(ctx context.Context) error { return l.Resign(ctx) }

// hold reports an acquisition, and checks it again and again for d, until over, or until it is lost. It returns the
// report of its end. It writes one time of two. With a nil r it never does, and lasts no longer during faults.
func (w *worker) hold(
	began event, lk family.Held, parts []oracle.Part, d time.Duration, over <-chan struct{}, r *rand.Rand,
) (end event) {
	h := family.Hold(began.Who, "", lk, parts...)
	h.Granted = sinceBoot()
	previous := h.Granted
	check := func() {
		called := sinceBoot()
		h.Gap, previous = max(h.Gap, called-previous), called
		switch err := lk.Check(); {
		case errors.Is(err, holdfast.ErrSuspended):
			h.Suspended = called
		case err == nil:
			if h.Last = called; h.First == 0 {
				h.First = sinceBoot()
			}
		}
	}
	check()
	began.Hold = h
	w.say(began)
	end = event{What: ended, Who: h.Who, Kind: began.Kind, Hold: h}
	if owner, ok := lk.(fencing.Hold); ok && r != nil && r.IntN(2) == 0 {
		holding, over := context.WithCancel(w.stop)
		defer over() // what is on its way may still be carried out
		fenced, n := fencedHolder{w, owner, parts[0], h.Who}, 0
		if parts[0].Shared { // a writer may have become this reader: no value is written twice
			n = 1 << 20
		}
		w.write(holding, r.Uint64(), func(ctx context.Context) {
			n++
			_ = fenced.put(ctx, n)
		})
		if fenced.token() != 0 {
			w.write(holding, r.Uint64(), fenced.mark)
			w.writes.Go(func() { fenced.markLate(holding) })
		}
		plain := oracle.PlainKey(parts[0].Prefix)
		w.write(holding, r.Uint64(), func(ctx context.Context) {
			if lk.Check() == nil {
				_, _ = owner.Client().Put(ctx, plain, h.Who)
			}
		})
	}
	timer, tick := time.NewTimer(d), time.NewTicker(2*time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			check()
		case <-lk.Done():
			h.Told = sinceBoot()
			h.Ended, end.Err = h.Told, fmt.Sprint(lk.Check())
			return end
		case <-timer.C:
			if check(); !w.keep.Load() || r == nil {
				h.Ended = sinceBoot()
				return end
			}
			timer.Reset(100 * time.Millisecond)
		case <-over:
			check()
			h.Ended = sinceBoot()
			return end
		}
	}
}

// write writes again and again while a lock is held. Each write is given time to arrive late.
func (w *worker) write(holding context.Context, seed uint64, put func(context.Context)) {
	w.writes.Go(func() {
		r := rand.New(rand.NewPCG(seed, 0))
		for holding.Err() == nil {
			ctx, cancel := context.WithTimeout(w.stop, 20*time.Second)
			put(ctx)
			cancel()
			pauseFor(holding, family.UpTo(r, 500*time.Millisecond))
		}
	})
}

func (w *worker) unlock(end event, lk family.Lock, r *rand.Rand) {
	if fn, ok := lk.(interface{ overstay(r *rand.Rand) }); ok && end.Hold.Told != 0 {
		fn.overstay(r)
	}
	ctx, cancel := context.WithTimeout(context.Background(), family.UpTo(r, 3*time.Second)+time.Millisecond)
	defer cancel()
	if err := lk.Unlock(ctx); err == nil {
		end.Hold.Unlocked = sinceBoot()
	} else if end.Err == "" {
		end.Err = err.Error()
	}
	w.say(end)
}
