//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/rpc"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/family"
)

// An adder is a process that adds to the sets in all ways at the same time.
type adder struct {
	job
	number int
	cli    *clientv3.Client
	sess   *session.Session
	sets   *rpc.Client
}

func runAdder(ctx context.Context, j job, parent *child.Parent[event]) error {
	a := &adder{job: j}
	var err error
	if a.number, err = strconv.Atoi(j.ID); err != nil {
		return err
	}
	if a.cli, err = connect(j.Endpoints, ""); err != nil {
		return err
	}
	defer a.cli.Close()
	if a.sess, err = session.New(ctx, a.cli, &session.Options{TTL: j.TTL}); err != nil {
		return err
	}
	if a.sets, err = rpc.Dial("unix", j.Sets); err != nil {
		return err
	}
	defer a.sets.Close()
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	for i := range ways {
		all.Go(func() { a.addAll(stop, i) })
	}
	_, err = parent.Hear(ctx)
	cancel()
	all.Wait()
	if err != nil {
		return err
	}
	return a.sess.Close(ctx)
}

// addAll adds one element after the other.
func (a *adder) addAll(stop context.Context, i int) {
	r := rand.New(rand.NewPCG(a.Seed, uint64(a.number)<<32|uint64(i)))
	for n := 0; stop.Err() == nil; n++ {
		lk, err := a.lock(stop, i)
		if err != nil {
			pauseFor(stop, 100*time.Millisecond)
			continue
		}
		a.add(lk, Access{Way: i, Process: a.number, Token: lk.token, Element: a.number*1_000_000 + n}, r)
		lk.unlock()
	}
}

// add reads the set, sleeps, and writes it.
func (a *adder) add(lk setLock, access Access, r *rand.Rand) {
	var read, written Reply
	if err := a.sets.Call("Sets.Read", access, &read); err != nil || read.Refused {
		return
	}
	access.Read = read.Elements
	pauseFor(context.Background(), family.UpTo(r, 2*time.Second))
	access.Told = ways[access.Way].asks && !lk.holds()
	_ = a.sets.Call("Sets.Write", access, &written) // what is refused is not added
}

// A setLock is one of etcd's concurrency, or ours.
type setLock struct {
	token  holdfast.Token
	holds  func() bool // what the client says
	unlock func()
}

func (a *adder) lock(ctx context.Context, i int) (setLock, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	name := fmt.Sprint("set", i)
	within := func(do func(context.Context) error) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = do(ctx) // what is left ends with the lease
	}
	if !ways[i].upstream {
		lk, err := locker.NewMutex(a.sess, name).Lock(ctx)
		if err != nil {
			return setLock{}, err
		}
		return setLock{lk.Token(), func() bool { return lk.Check() == nil }, func() { within(lk.Unlock) }}, nil
	}
	sess, err := concurrency.NewSession(a.cli, concurrency.WithTTL(int(a.TTL.Seconds())))
	if err != nil {
		return setLock{}, err
	}
	mutex := concurrency.NewMutex(sess, name)
	if err := mutex.Lock(ctx); err != nil {
		_ = sess.Close()
		return setLock{}, err
	}
	holds := func() bool {
		select {
		case <-sess.Done():
			return false
		default:
			return true
		}
	}
	return setLock{0, holds, func() { within(mutex.Unlock); _ = sess.Close() }}, nil
}
