package locker_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// BenchmarkReaders compares readers with a Mutex, on a local etcd:
//
//	go test -run '^$' -bench Readers -benchtime 200x ./tests/etcd/locker
//
// Together is 64 goroutines of one session, which acquire and release once each. HandOver is a writer that lets go
// while 16 readers of another session, or as many writers, and then a writer of its own session come.
func BenchmarkReaders(b *testing.B) {
	srv := etcdtest.Start(b, etcdtest.Options{Fsync: true})
	ctx := context.Background()
	one := open(b, srv.Client(b), session.Options{TTL: 600 * time.Second})
	other := open(b, srv.Client(b), session.Options{TTL: 600 * time.Second})
	write := func(rw *locker.RWMutex) error {
		return rw.Do(ctx, func(context.Context, *locker.Lock) error { return nil })
	}
	read := func(rw *locker.RWMutex) error {
		return rw.RDo(ctx, func(context.Context, *locker.ReadLock) error { return nil })
	}
	for _, kind := range []struct {
		name string
		use  func(*locker.RWMutex) error
	}{{"Mutex", write}, {"readers", read}} {
		b.Run("Free/"+kind.name, func(b *testing.B) {
			rw := locker.NewRWMutex(one, "free")
			for b.Loop() {
				if err := kind.use(rw); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("Together/"+kind.name, func(b *testing.B) {
			rw := locker.NewRWMutex(one, "together")
			for b.Loop() {
				useTogether(b, 64, func() error { return kind.use(rw) })
			}
		})
		b.Run("HandOver/"+kind.name, func(b *testing.B) {
			mine, theirs := locker.NewRWMutex(one, "hand-over"), locker.NewRWMutex(other, "hand-over")
			for b.Loop() {
				lk, err := mine.Lock(ctx)
				if err != nil {
					b.Fatal(err)
				}
				var all sync.WaitGroup
				all.Go(func() { useTogether(b, 16, func() error { return kind.use(theirs) }) })
				if err := lk.Unlock(ctx); err != nil {
					b.Fatal(err)
				}
				if err := write(mine); err != nil {
					b.Fatal(err)
				}
				all.Wait()
			}
		})
	}
}

// useTogether calls use on n goroutines and waits for them.
func useTogether(b *testing.B, n int, use func() error) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if err := use(); err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
}
