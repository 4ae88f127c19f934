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

	"github.com/holdfast-go/holdfast/election"
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
func (w *worker) meetNewcomers() {
	r := rand.New(rand.NewPCG(w.Seed, 2<<32))
	for n := 0; w.stop.Err() == nil; n++ {
		w.meetNewcomer(fmt.Sprintf("%s newcomer %d", w.ID, n), r)
		pauseFor(w.stop, family.UpTo(r, 200*time.Millisecond))
	}
}

func (w *worker) meetNewcomer(who string, r *rand.Rand) {
	name := fmt.Sprintf("%s-newcomer-%s", w.Shards, processOf(w.ID))
	both := meetings[r.IntN(len(meetings))]
	first := both.former(w.former, name, who+", former holder", false)
	lk := w.acquireNow(first, 15*time.Second)
	if lk == nil {
		return
	}
	over := make(chan struct{})
	var holding sync.WaitGroup
	holding.Go(func() {
		r := rand.New(rand.NewPCG(w.Seed, uint64(lk.AcquiredRevision())))
		w.unlock(w.hold(first.held(), lk, first.parts, time.Hour, over, r), lk, r)
	})
	pauseFor(w.stop, family.UpTo(r, 50*time.Millisecond))
	if w.removeByHand(lk, r.IntN(4) > 0) == nil {
		second := both.newcomer(w.sess, name, who, r.IntN(8) == 0)
		if next := w.acquireNow(second, 15*time.Second); next != nil {
			w.unlock(w.hold(second.held(), next, second.parts, 5*time.Millisecond, nil, nil), next, r)
		}
	}
	close(over)
	holding.Wait()
}

// A call is an acquisition of a lock of any kind.
type call struct {
	who     string
	kind    family.Kind
	try     bool
	acquire family.Acquire
	parts   []oracle.Part
}

func (c call) held() event { return event{What: held, Who: c.who, Kind: c.kind} }

// caller returns a call on a session for a name, by an owner who tries or waits.
type caller func(sess *session.Session, name, who string, try bool) call

// meetings are the ways of a holder and of a newcomer that it excludes.
var meetings = []struct{ former, newcomer caller }{
	{lockCall, lockCall}, {writeCall, readCall}, {readCall, writeCall}, {lockCall, setCall}, {setCall, lockCall},
	{treeCall(""), treeCall("/below")}, {treeCall("/below"), treeCall("")}, {permitCall, permitCall}, {leadCall, leadCall},
}

func lockCall(sess *session.Session, name, who string, try bool) call {
	mu := locker.NewMutex(sess, name).With(locker.Options{Owner: who})
	return call{who, family.Writer, try, family.Mutex(mu, try), []oracle.Part{oracle.LockPart(name, false)}}
}

func writeCall(sess *session.Session, name, who string, try bool) call {
	rw := locker.NewRWMutex(sess, name).With(locker.Options{Owner: who})
	return call{who, family.Writer, try, family.Either(try, rw.TryLock, rw.Lock),
		[]oracle.Part{oracle.LockPart(name, false)}}
}

func readCall(sess *session.Session, name, who string, try bool) call {
	rw := locker.NewRWMutex(sess, name).With(locker.Options{Owner: who})
	return call{who, family.Reader, try, family.Either(try, rw.TryRLock, rw.RLock),
		[]oracle.Part{oracle.LockPart(name, true)}}
}

func setCall(sess *session.Session, name, who string, try bool) call {
	names := []string{name, name + " too"}
	set := locker.NewSet(sess, locker.Write(names[0]), locker.Write(names[1])).With(locker.Options{Owner: who})
	return call{who, family.Set, try, family.OfSet(set, names, try),
		[]oracle.Part{oracle.LockPart(names[0], false), oracle.LockPart(names[1], false)}}
}

func treeCall(below string) caller {
	return func(sess *session.Session, name, who string, try bool) call {
		tree := locker.NewTreeMutex(sess, name+below).With(locker.Options{Owner: who})
		return call{who, family.Tree, try, family.Either(try, tree.TryLock, tree.Lock), family.TreeParts(name + below)}
	}
}

// permitCall acquires all permits of a semaphore.
func permitCall(sess *session.Session, name, who string, try bool) call {
	sem := locker.NewSemaphore(sess, name, oracle.FirstLimit).With(locker.Options{Owner: who})
	return call{who, permitKind, try, family.Permit(sem, oracle.FirstLimit, try), []oracle.Part{oracle.PermitPart(name)}}
}

func leadCall(sess *session.Session, name, who string, _ bool) call {
	el := election.New(sess, name).With(election.Options{Value: who})
	return call{who, leaderKind, false, func(ctx context.Context) (family.Lock, error) {
		term, err := el.Campaign(ctx)
		if err != nil {
			return nil, err
		}
		return leadership{term}, nil
	}, []oracle.Part{oracle.ElectionPart(name)}}
}

// removeByHand ends a hold as an administrator does who knows no holdfast.
func (w *worker) removeByHand(lk family.Lock, revoke bool) (err error) {
	ctx, cancel := context.WithTimeout(w.stop, 5*time.Second)
	defer cancel()
	if revoke {
		w.say(event{What: byHand, Removal: removal{Lease: lk.Lease()}})
		_, err = w.cli.Revoke(ctx, lk.Lease())
		return err
	}
	resp, err := w.cli.Get(ctx, lk.Key())
	if err != nil || len(resp.Kvs) == 0 {
		return errors.Join(err, errGone)
	}
	created := resp.Kvs[0].CreateRevision // of this hold: its session has no other call for this name
	w.say(event{What: byHand, Removal: removal{Entry: idOf(lk.Key(), created)}})
	same := clientv3.Compare(clientv3.CreateRevision(lk.Key()), "=", created)
	_, err = w.cli.Txn(ctx).If(same).Then(clientv3.OpDelete(lk.Key())).Commit()
	return err
}

var errGone = errors.New("the entry has gone meanwhile")

// acquireNow acquires a lock within a time, or returns nil.
func (w *worker) acquireNow(c call, within time.Duration) family.Lock {
	ctx, cancel := context.WithTimeout(w.stop, within)
	defer cancel()
	ofMutex := c.try && c.kind == family.Writer
	w.say(event{What: wants, Who: c.who, Parts: c.parts, callReport: callReport{Try: ofMutex}})
	lk, err := c.acquire(ctx)
	if err != nil {
		w.sayFailed(c.who, c.kind, ofMutex, err)
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
			c := lockCall(w.sess, name, who, false)
			lk := w.acquireNow(c, time.Minute)
			if lk == nil {
				return
			}
			r := rand.New(rand.NewPCG(w.Seed, 3<<32+uint64(i)))
			w.unlock(w.hold(c.held(), lk, c.parts, time.Millisecond, nil, nil), lk, r)
		})
	}
}
