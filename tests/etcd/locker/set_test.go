package locker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
)

// room counts who is in: a writer counts as many, so that no reader is in beside it.
type room struct{ in atomic.Int64 }

const wholeRoom = 1 << 20

// enter reports whether the rule is kept.
func (r *room) enter(alone bool) (ok bool) {
	if alone {
		return r.in.Add(wholeRoom) == wholeRoom
	}
	return r.in.Add(1) < wholeRoom
}

func (r *room) leave(alone bool) {
	if alone {
		r.in.Add(-wholeRoom)
	} else {
		r.in.Add(-1)
	}
}

// Sets of random names, in random order, from three sessions, beside mutexes and readers of the same names.
func TestRandomSetsExcludeAndGetIn(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	rooms := make([]room, 6)
	var all sync.WaitGroup
	for s := range 3 {
		sess := open(t, srv.Client(t), session.Options{})
		for g := range 4 {
			all.Go(func() { // joined below
				r := rand.New(rand.NewPCG(uint64(s), uint64(g)))
				for range rounds.Of(15, 5) {
					useSet(t, sess, r, rooms)
				}
			})
		}
	}
	all.Wait()
	if left := srv.Keys(t, "holdfast/lock/"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// useSet acquires a random set once, and checks that each of its locks excludes.
func useSet(t *testing.T, sess *session.Session, r *rand.Rand, rooms []room) {
	var parts []locker.Part
	alone := make(map[int]bool)
	for _, i := range r.Perm(len(rooms))[:1+r.IntN(4)] {
		alone[i] = r.IntN(2) == 0
		if name := fmt.Sprint("room", i); alone[i] {
			parts = append(parts, locker.Write(name))
		} else {
			parts = append(parts, locker.Read(name))
		}
	}
	err := locker.NewSet(sess, parts...).Do(deadline(t), func(ctx context.Context, set *locker.SetLock) error {
		for i, alone := range alone {
			if !rooms[i].enter(alone) {
				t.Errorf("two hold room %d", i)
			}
		}
		_, err := set.Client().Get(ctx, "work") // takes as long as a request, so that others come meanwhile
		for i, alone := range alone {
			rooms[i].leave(alone)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestRandomTreeLocksExcludeAboveAndBelow(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	paths := []string{"a", "a/b", "a/b/c", "a/d", "e", "e/f"}
	rooms := make(map[string]*room)
	for _, path := range paths {
		rooms[path] = new(room)
	}
	var all sync.WaitGroup
	for s := range 3 {
		sess := open(t, srv.Client(t), session.Options{})
		for g := range 3 {
			all.Go(func() { // joined below
				r := rand.New(rand.NewPCG(uint64(s), uint64(g)))
				for range rounds.Of(15, 5) {
					path := paths[r.IntN(len(paths))]
					err := locker.NewTreeMutex(sess, path).Do(deadline(t), func(context.Context, *locker.Lock) error {
						for p, room := range rooms { // it is alone in all that is below
							if below := p == path || strings.HasPrefix(p, path+"/"); below && !room.enter(true) {
								t.Errorf("two hold %s", p)
							}
						}
						for p, room := range rooms {
							if p == path || strings.HasPrefix(p, path+"/") {
								room.leave(true)
							}
						}
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	if left := srv.Keys(t, "holdfast/tree/"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// etcd itself refuses a transaction of more operations.
func TestLargestSetAndDeepestTreeLockFitIntoATransaction(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	one, other := open(t, srv.Client(t), session.Options{}), open(t, srv.Client(t), session.Options{})
	var parts []locker.Part
	for i := range locker.MaxSet {
		parts = append(parts, locker.Write(fmt.Sprint("m", i)))
	}
	set, err := locker.NewSet(one, parts...).TryLock(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan error, 1)
	go func() { // received below
		waits <- locker.NewSet(other, parts...).Do(deadline(t), func(context.Context, *locker.SetLock) error { return nil })
	}()
	eventually(t, "the other set waits", func() bool { return len(entries(t, srv, "m0")) == 2 })
	seventh, err := set.Holder("m7")
	if err != nil {
		t.Fatal(err)
	}
	w := etcdfence.NewWriter(seventh)
	var puts []clientv3.Op
	for i := range etcdfence.MaxOps + 1 - locker.MaxSet {
		puts = append(puts, clientv3.OpPut(fmt.Sprint("state/", i), ""))
	}
	if _, err := w.Txn(deadline(t)).Then(puts...).Commit(); err != nil {
		t.Errorf("a fenced transaction of %d operations: %v", len(puts), err)
	}
	puts = append(puts, clientv3.OpPut("state/more", ""))
	if _, err := w.Txn(deadline(t)).Then(puts...).Commit(); !errors.As(err, new(*holdfast.ArgumentError)) {
		t.Errorf("a fenced transaction of %d operations: %v", len(puts), err)
	}
	if err := set.Unlock(deadline(t)); err != nil {
		t.Error(err)
	}
	if err := <-waits; err != nil {
		t.Error(err)
	}
	tree := locker.NewTreeMutex(one, strings.Repeat("/a", locker.MaxSet)[1:])
	if err := tree.TryDo(deadline(t), func(context.Context, *locker.Lock) error { return nil }); err != nil {
		t.Error(err)
	}
	if left := srv.Keys(t, "holdfast/lock/"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// The holder of a set is told before the next one holds, although etcd revokes its lease unannounced.
func TestSetWhoseLeaseIsRevokedIsToldBeforeTheNextHolds(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	one, other := open(t, srv.Client(t), session.Options{}), open(t, srv.Client(t), session.Options{})
	set, err := locker.NewSet(one, locker.Write("x"), locker.Read("y")).Lock(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan error, 1)
	go func() { // received below
		waits <- locker.NewSet(other, locker.Write("y"), locker.Write("x")).Do(deadline(t),
			func(context.Context, *locker.SetLock) error {
				if set.Check() == nil {
					return errors.New("two sets hold")
				}
				return nil
			})
	}()
	eventually(t, "the other set waits", func() bool { return len(entries(t, srv, "x")) == 2 })
	if _, err := srv.Client(t).Revoke(deadline(t), set.Lease()); err != nil {
		t.Fatal(err)
	}
	if err := <-waits; err != nil {
		t.Error(err)
	}
	var lost *holdfast.LostError
	// On a busy machine the time to ask whether the lease is gone may not suffice.
	err = set.Unlock(deadline(t))
	if !errors.As(err, &lost) || lost.Cause != holdfast.CauseRevoked && lost.Cause != holdfast.CauseKeyDeleted {
		t.Errorf("Unlock: %v", err)
	}
}

// etcd's own lock waits for both entries of a lock that can be downgraded, and is waited for by it.
func TestDowngradableLockAndEtcdMutexExcludeEachOther(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	one, other := open(t, srv.Client(t), session.Options{}), open(t, srv.Client(t), session.Options{})
	upstream, err := concurrency.NewSession(srv.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = upstream.Close() })
	theirs := concurrency.NewMutex(upstream, "/locks/x")
	mine := locker.NewRWMutexAt(one, "/locks/x")

	lk, err := mine.LockDowngradable(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := theirs.TryLock(deadline(t)); !errors.Is(err, concurrency.ErrLocked) {
		t.Errorf("TryLock of etcd's mutex: %v", err)
	}
	reader := make(chan *locker.ReadLock, 1)
	go func() { // received below
		rd, err := locker.NewRWMutexAt(other, "/locks/x").RLock(deadline(t))
		if err != nil {
			t.Error(err)
		}
		reader <- rd
	}()
	eventually(t, "the reader waits", func() bool { return len(srv.Keys(t, "/locks/x/")) == 3 })
	granted := make(chan error, 1)
	go func() { granted <- theirs.Lock(deadline(t)) }() // received below
	eventually(t, "etcd's mutex waits", func() bool { return len(srv.Keys(t, "/locks/x/")) == 4 })

	rd, err := lk.Downgrade(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	second := <-reader
	if len(granted) > 0 || rd.Check() != nil || second.Check() != nil {
		t.Error("etcd's mutex is held beside readers")
	}
	for _, rd := range []*locker.ReadLock{rd, second} {
		if err := rd.Unlock(deadline(t)); err != nil {
			t.Error(err)
		}
	}
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
	again := make(chan *locker.DowngradableLock, 1)
	go func() { // received below
		lk, err := mine.LockDowngradable(deadline(t))
		if err != nil {
			t.Error(err)
		}
		again <- lk
	}()
	eventually(t, "it waits for etcd's mutex", func() bool { return len(srv.Keys(t, "/locks/x/")) == 3 })
	if len(again) > 0 {
		t.Error("held beside etcd's mutex")
	}
	if err := theirs.Unlock(deadline(t)); err != nil {
		t.Error(err)
	}
	if lk := <-again; lk != nil {
		_ = lk.Unlock(deadline(t))
	}
}

// The lease of a lock that was downgraded is revoked: the writer behind waits for the lock delay, and finds it told.
func TestDowngradedLockWhoseLeaseIsRevokedIsToldBeforeAWriterHolds(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	one, other := open(t, srv.Client(t), session.Options{}), open(t, srv.Client(t), session.Options{})
	lk, err := locker.NewRWMutex(one, "x").LockDowngradable(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan error, 1)
	var rd *locker.ReadLock
	downgraded := make(chan struct{})
	go func() { // received below
		waits <- locker.NewMutex(other, "x").Do(deadline(t), func(context.Context, *locker.Lock) error {
			<-downgraded
			if rd.Check() == nil {
				return errors.New("a writer holds beside the reader")
			}
			return nil
		})
	}()
	eventually(t, "the writer waits", func() bool { return len(entries(t, srv, "x")) == 3 })
	if rd, err = lk.Downgrade(deadline(t)); err != nil {
		t.Fatal(err)
	}
	close(downgraded)
	if _, err := srv.Client(t).Revoke(deadline(t), rd.Lease()); err != nil {
		t.Fatal(err)
	}
	if err := <-waits; err != nil {
		t.Error(err)
	}
}
