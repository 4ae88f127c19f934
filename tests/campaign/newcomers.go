//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/family"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// A removal is what a process is about to do to a hold of its own, by its client and not by its session.
type removal struct {
	Lease clientv3.LeaseID // that it revokes, or 0
	Entry string           // that it deletes, by entryID
}

// meetNewcomers acquires a lock of its own on a session of its own, again and again, and revokes the lease or deletes
// the entry by hand. At once the session of the other calls comes as a newcomer. No entry is ahead of it, so only the
// claim tells it of the holder, who may not know of the loss yet.
func (w *worker) meetNewcomers(former *session.Session) {
	r := rand.New(rand.NewPCG(w.Seed, 2<<32))
	for n := 0; w.stop.Err() == nil; n++ {
		w.meetNewcomer(former, fmt.Sprintf("%s newcomer %d", w.ID, n), r)
		pauseFor(w.stop, family.UpTo(r, 200*time.Millisecond))
	}
}

func (w *worker) meetNewcomer(former *session.Session, who string, r *rand.Rand) {
	name := fmt.Sprintf("%s-newcomer-%s", w.Shards, processOf(w.ID))
	parts := []oracle.Part{oracle.LockPart(name, false)}
	lk := w.acquireNow(former, name, who+", former holder", 15*time.Second, false)
	if lk == nil {
		return
	}
	over := make(chan struct{})
	var holding sync.WaitGroup
	holding.Go(func() {
		began := event{What: held, Who: who + ", former holder", Kind: family.Writer}
		r := rand.New(rand.NewPCG(w.Seed, uint64(lk.Token())))
		w.unlock(w.hold(began, lk, parts, time.Hour, over, r), lk, r)
	})
	pauseFor(w.stop, family.UpTo(r, 50*time.Millisecond))
	if w.removeByHand(lk, r.IntN(4) > 0) == nil {
		if next := w.acquireNow(w.sess, name, who, 15*time.Second, r.IntN(8) == 0); next != nil {
			began := event{What: held, Who: who, Kind: family.Writer}
			w.unlock(w.hold(began, next, parts, 5*time.Millisecond, nil, nil), next, r)
		}
	}
	close(over)
	holding.Wait()
}

// removeByHand ends a hold as an administrator does who knows no holdfast.
func (w *worker) removeByHand(lk *locker.Lock, revoke bool) (err error) {
	ctx, cancel := context.WithTimeout(w.stop, 5*time.Second)
	defer cancel()
	if revoke {
		w.say(event{What: byHand, Removal: removal{Lease: lk.Lease()}})
		_, err = w.cli.Revoke(ctx, lk.Lease())
		return err
	}
	created := lk.Token().Revision()
	w.say(event{What: byHand, Removal: removal{Entry: idOf(lk.Key(), created)}})
	same := clientv3.Compare(clientv3.CreateRevision(lk.Key()), "=", created)
	_, err = w.cli.Txn(ctx).If(same).Then(clientv3.OpDelete(lk.Key())).Commit()
	return err
}

// acquireNow acquires a mutex within a time, or returns nil.
func (w *worker) acquireNow(
	sess *session.Session, name, who string, within time.Duration, try bool,
) *locker.Lock {
	ctx, cancel := context.WithTimeout(w.stop, within)
	defer cancel()
	mu := locker.NewMutex(sess, name).With(locker.Options{Owner: who})
	acquire := mu.Lock
	if try {
		acquire = mu.TryLock
	}
	w.say(event{What: wants, Who: who, Parts: []oracle.Part{oracle.LockPart(name, false)},
		callReport: callReport{Try: try}})
	lk, err := acquire(ctx)
	if err != nil {
		w.sayFailed(who, family.Writer, try, err)
		return nil
	}
	return lk
}

// sayFailed reports that a call has failed.
func (w *worker) sayFailed(who string, kind family.Kind, try bool, err error) {
	w.say(event{What: failed, Who: who, Kind: kind, Err: err.Error(), callReport: callReport{
		Taken: try && errors.Is(err, locker.ErrLocked), Over: errors.Is(err, context.DeadlineExceeded),
	}})
}

// crowd is how many callers want one lock at once, in all processes.
const crowd = 960

// crowdMark is in the names of these callers.
const crowdMark = " of a crowd, caller "

// comeAsCrowd has this process's part of a crowd acquire one lock, each caller within a minute.
func (w *worker) comeAsCrowd(all *sync.WaitGroup) {
	name := w.Shards + "-crowd"
	for i := range w.Crowd {
		all.Go(func() {
			who := fmt.Sprintf("%s%s%d", w.ID, crowdMark, i)
			lk := w.acquireNow(w.sess, name, who, time.Minute, false)
			if lk == nil {
				return
			}
			r := rand.New(rand.NewPCG(w.Seed, 3<<32+uint64(i)))
			began := event{What: held, Who: who, Kind: family.Writer}
			parts := []oracle.Part{oracle.LockPart(name, false)}
			w.unlock(w.hold(began, lk, parts, time.Millisecond, nil, nil), lk, r)
		})
	}
}
