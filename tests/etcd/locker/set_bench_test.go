package locker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// BenchmarkSets compares sets, tree locks and downgrades with a Mutex, free, on a local etcd. OneByOne is as many
// mutexes as the set has names, locked one after the other:
//
//	go test -run '^$' -bench Sets -benchtime 200x ./tests/etcd/locker
func BenchmarkSets(b *testing.B) {
	srv := etcdtest.Start(b, etcdtest.Options{Fsync: true})
	ctx := context.Background()
	sess := open(b, srv.Client(b), session.Options{TTL: 600 * time.Second})
	run := func(name string, use func() error) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := use(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	none := func(context.Context, *locker.Lock) error { return nil }
	run("Mutex", func() error { return locker.NewMutex(sess, "x").Do(ctx, none) })
	for _, n := range []int{2, 8, locker.MaxSet} {
		var parts []locker.Part
		var oneByOne func(i int) error
		for i := range n {
			parts = append(parts, locker.Write(fmt.Sprint("m", i)))
		}
		oneByOne = func(i int) error {
			if i == n {
				return nil
			}
			return locker.NewMutex(sess, fmt.Sprint("m", i)).Do(ctx, func(context.Context, *locker.Lock) error {
				return oneByOne(i + 1)
			})
		}
		set := locker.NewSet(sess, parts...)
		run(fmt.Sprint("Set/", n), func() error {
			return set.Do(ctx, func(context.Context, *locker.SetLock) error { return nil })
		})
		run(fmt.Sprint("OneByOne/", n), func() error { return oneByOne(0) })
	}
	for _, depth := range []int{1, 4, 16} {
		tree := locker.NewTreeMutex(sess, strings.Repeat("/a", depth)[1:])
		run(fmt.Sprint("Tree/", depth), func() error { return tree.Do(ctx, none) })
	}
	rw := locker.NewRWMutex(sess, "x")
	run("Downgrade", func() error {
		lk, err := rw.LockDowngradable(ctx)
		if err != nil {
			return err
		}
		rd, err := lk.Downgrade(ctx)
		if err != nil {
			return err
		}
		return rd.Unlock(ctx)
	})
}
