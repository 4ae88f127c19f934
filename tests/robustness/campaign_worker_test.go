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
		_, err := lockAnyOnce(ctx, &p.client, name)
		if err == nil {
			err = p.acquireAll(ctx, name)
		}
		if err != nil {
			p.parent.Say("family", familyEvent{What: "cannot", Who: p.ID, Err: err.Error()})
		}
	}
}

// acquireAll acquires and releases all permits of a semaphore.
func (p *familyProcess) acquireAll(ctx context.Context, name string) error {
	sem, limit, err := p.semaphore(ctx, name)
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
func (p *familyProcess) semaphore(ctx context.Context, name string) (*locker.Semaphore, int, error) {
	sem := locker.NewSemaphore(p.client.session(), name, firstLimit)
	limit, err := sem.Limit(ctx)
	if err != nil || limit == 0 {
		return sem, firstLimit, err
	}
	return locker.NewSemaphore(p.client.session(), name, limit), limit, nil
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
	holds := []time.Duration{5 * time.Millisecond, 50 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second}
	hold := upTo(r, holds[r.IntN(len(holds))])
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
		sem, limit, err := p.semaphore(ctx, name)
		if err != nil {
			return nil, nil
		}
		if name == p.Names[len(p.Names)-1] && r.IntN(4) == 0 {
			_, _ = sem.Resize(ctx, 1+r.IntN(4))
			return nil, nil
		}
		weight := 1 + r.IntN(limit)
		sem = sem.With(locker.Options{Owner: ev.Who})
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
	previous := sinceBoot()
	check := func() {
		called := sinceBoot()
		ended.Gap, previous = max(ended.Gap, called-previous), called
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
		previous = sinceBoot()
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
	p.parent.Say("family", ended)
}
