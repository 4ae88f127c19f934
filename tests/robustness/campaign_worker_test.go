package robustness

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// familyWorker is the name of a child that acquires locks of all kinds, as the simulation does, and reports what it
// observes of them.
const familyWorker = "family worker"

// The kinds of holds that a familyWorker has beside those of drawLock.
const (
	permitKind = allKinds + iota
	minHoldKind
	familyKinds
)

// A familyJob is the argument of runFamilyWorker.
type familyJob struct {
	ID         string
	Names      []string // of locks and semaphores; the limit of the last semaphore changes
	Endpoints  []string
	TTL        time.Duration
	Seed       uint64
	Goroutines int
}

// A familyEvent is a report of a familyWorker. All times are by sinceBoot, which all processes share.
type familyEvent struct {
	What string // "wants", "held", "ended", "failed", or "closed", or "cannot" after all faults were healed
	Who  string // the owner of the entries: one call
	Kind int
	Err  string
	At   time.Duration // "wants": the call began; "held": it returned; "failed": it returned an error

	Parts []familyPart // "wants" and "held"

	// "held":
	Key             string
	Lease           clientv3.LeaseID
	Token, Acquired int64
	MinHold         time.Duration

	// "ended". First is when the first Check that returned nil returned, Last is when the last one was called, so it was
	// believed to be held between them. Both are zero if there was none.
	First, Last          time.Duration
	Told                 time.Duration // when Done was closed; zero if the hold was released
	Unlocked             time.Duration // when Unlock returned nil, or zero
	Downgraded, Released bool
}

type familyPart struct {
	Prefix string
	Reads  bool
}

// parts returns the queues that the call has entries in.
func (ev familyEvent) parts() (all []part) {
	for _, p := range ev.Parts {
		all = append(all, part{prefix: p.Prefix, reads: p.Reads})
	}
	return all
}

// text returns the text of an error, or "".
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func familyParts(parts []part) (all []familyPart) {
	for _, p := range parts {
		all = append(all, familyPart{p.prefix, p.reads})
	}
	return all
}

// sinceBoot is the same clock in all processes.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

type familyProcess struct {
	familyJob
	parent *child.Parent[familyEvent]
	client simClient   // has the session
	sim    *simulation // has the names
	stop   context.Context
	keep   atomic.Bool // holds are not released
}

func runFamilyWorker(ctx context.Context, _ string, j familyJob, parent *child.Parent[familyEvent]) error {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	cli, err := clientv3.New(session.ClientConfig(j.Endpoints...))
	if err != nil {
		return err
	}
	sess, err := session.New(ctx, cli, &session.Options{TTL: j.TTL, CloseTimeout: simCloseTimeout})
	if err != nil {
		return err
	}
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &familyProcess{familyJob: j, parent: parent, sim: &simulation{names: j.Names}, stop: stop}
	p.client.sess.Store(sess)
	var all sync.WaitGroup
	for g := range j.Goroutines {
		all.Go(func() { p.work(g) })
	}
	for message := ""; message != "end"; p.keep.Store(message == "keep") {
		if message, err = parent.Hear(ctx); err != nil {
			return err
		}
	}
	cancel()
	all.Wait()
	p.recover(ctx)
	err = sess.Close(ctx)
	parent.Say("family", familyEvent{What: "closed", Who: j.ID, Err: text(err)})
	return cli.Close()
}

// recover acquires each name when all faults have been healed.
func (p *familyProcess) recover(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, name := range p.Names {
		what, err := lockAnyOnce(ctx, &p.client, name)
		for err == nil {
			what = "acquire"
			var limit int
			if limit, err = locker.NewSemaphore(p.client.session(), name, firstLimit).Limit(ctx); err != nil || limit == 0 {
				break
			}
			var permit *locker.Permit
			permit, err = locker.NewSemaphore(p.client.session(), name, limit).Acquire(ctx, limit)
			if err == nil {
				err = permit.Release(ctx)
				break
			}
		}
		if err != nil {
			p.parent.Say("family", familyEvent{What: "cannot", Who: p.ID + " " + what + " " + name, Err: err.Error()})
		}
	}
}

func (p *familyProcess) work(g int) {
	r := rand.New(rand.NewPCG(p.Seed, uint64(g)))
	for call := 0; p.stop.Err() == nil; call++ {
		p.call(fmt.Sprintf("%s goroutine %d call %d", p.ID, g, call), r)
		pause := time.NewTimer(upTo(r, 100*time.Millisecond))
		select {
		case <-pause.C:
		case <-p.stop.Done():
		}
	}
}

// call acquires a lock, holds it and releases it.
func (p *familyProcess) call(who string, r *rand.Rand) {
	ev := familyEvent{What: "wants", Who: who, Kind: r.IntN(familyKinds)}
	if ev.Kind == minHoldKind && r.IntN(4) > 0 { // the name stays taken for seconds
		ev.Kind = writeKind
	}
	bounds := []time.Duration{100 * time.Millisecond, 3 * time.Second, 15 * time.Second, 40 * time.Second}
	ctx, cancel := context.WithTimeout(p.stop, upTo(r, bounds[r.IntN(len(bounds))]))
	defer cancel()
	acquire, parts := p.draw(ctx, &ev, r)
	if acquire == nil {
		return
	}
	ev.Parts, ev.At = familyParts(parts), sinceBoot()
	p.parent.Say("family", ev)
	lk, err := acquire(ctx)
	if err != nil {
		p.parent.Say("family", familyEvent{What: "failed", Who: who, Kind: ev.Kind, At: sinceBoot(), Err: err.Error()})
		return
	}
	hold := upTo(r, []time.Duration{5 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, 3 * time.Second}[r.IntN(4)])
	ended := p.held(ev, lk, hold, r)
	if w, ok := lk.(*locker.DowngradableLock); ok && r.IntN(2) == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if rd, err := w.Downgrade(ctx); err == nil {
			ended.Downgraded = true
			p.parent.Say("family", ended)
			ev.Parts = []familyPart{{parts[0].prefix, true}}
			p.unlock(p.held(ev, rd, hold, r), rd, r)
			return
		}
	}
	p.unlock(ended, lk, r)
}

// draw returns how to acquire a lock of ev.Kind, or nil if that is not to be acquired now.
func (p *familyProcess) draw(ctx context.Context, ev *familyEvent, r *rand.Rand) (
	acquire func(context.Context) (unlocker, error), parts []part,
) {
	name := p.Names[r.IntN(len(p.Names))]
	switch ev.Kind {
	case permitKind:
		sem := locker.NewSemaphore(p.client.session(), name, firstLimit)
		limit, err := sem.Limit(ctx)
		if err != nil {
			return nil, nil
		}
		if limit == 0 {
			limit = firstLimit
		}
		sem = locker.NewSemaphore(p.client.session(), name, limit).With(locker.Options{Owner: ev.Who})
		if name == p.Names[len(p.Names)-1] && r.IntN(4) == 0 {
			_, _ = sem.Resize(ctx, 1+r.IntN(4))
			return nil, nil
		}
		weight := 1 + r.IntN(limit)
		return func(ctx context.Context) (unlocker, error) {
			permit, err := sem.Acquire(ctx, weight)
			if err != nil {
				return nil, err
			}
			return heldPermit{permit}, nil
		}, []part{permitPart(name)}
	case minHoldKind:
		ev.MinHold = upTo(r, 2*time.Second) + time.Nanosecond
		mu := locker.NewMutex(p.client.session(), name).With(locker.Options{Owner: ev.Who, MinHold: ev.MinHold})
		return lockWith(mu, r.IntN(4) == 0), []part{lockPart(name, false)}
	}
	return p.sim.drawLock(&p.client, r, ev.Kind, ev.Who)
}

// held reports an acquisition, and checks it again and again for d, or until it is lost. It returns the report of its
// end.
func (p *familyProcess) held(ev familyEvent, lk unlocker, d time.Duration, r *rand.Rand) (ended familyEvent) {
	ended = familyEvent{What: "ended", Who: ev.Who, Kind: ev.Kind}
	check := func() {
		called := sinceBoot()
		if lk.Check() != nil {
			return
		}
		if ended.Last = called; ended.First == 0 {
			ended.First = sinceBoot()
		}
	}
	check()
	ev.What, ev.At, ev.Key, ev.Lease, ev.Acquired = "held", sinceBoot(), lk.Key(), lk.Lease(), lk.AcquiredRevision()
	ev.First = ended.First
	if lk, ok := lk.(fencing.Source); ok {
		ev.Token = int64(lk.Token())
	}
	p.parent.Say("family", ev)
	if owner, ok := lk.(fencing.Owner); ok && r.IntN(2) == 0 {
		ctx, cancel := context.WithTimeout(p.stop, time.Second)
		_, _ = fencing.NewFencedWriter(owner).Put(ctx, dataKey(ev.Parts[0].Prefix), ev.Who)
		cancel()
	}
	end, tick := time.NewTimer(d), time.NewTicker(2*time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			check()
		case <-lk.Done():
			ended.Told, ended.Err = sinceBoot(), fmt.Sprint(lk.Check())
			return ended
		case <-end.C:
			if check(); !p.keep.Load() {
				return ended
			}
			end.Reset(100 * time.Millisecond)
		}
	}
}

// dataKey returns the key that holders of a name write.
func dataKey(prefix string) string { return "data/" + strings.TrimPrefix(prefix, simEntries) }

func (p *familyProcess) unlock(ended familyEvent, lk unlocker, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), upTo(r, 3*time.Second)+time.Millisecond)
	defer cancel()
	if err := lk.Unlock(ctx); err == nil {
		ended.Unlocked = sinceBoot()
	} else if ended.Err == "" {
		ended.Err = err.Error()
	}
	ended.Released = true
	p.parent.Say("family", ended)
}
