package locker_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// BenchmarkSemaphore compares permits with a Mutex, on a local etcd:
//
//	go test -run '^$' -bench Semaphore -benchtime 200x ./tests/etcd/locker
//
// Free is one goroutine, and FreeBeside100 the same while another session holds 100 permits. HandOver is two sessions
// that acquire and release in turns, with one permit. Crowd is 64 goroutines of one session, which acquire and release
// once each; of the semaphore with eight permits.
func BenchmarkSemaphore(b *testing.B) {
	srv := etcdtest.Start(b, etcdtest.Options{Fsync: true})
	ctx := context.Background()
	one := open(b, srv.Client(b), session.Options{TTL: 600 * time.Second})
	other := open(b, srv.Client(b), session.Options{TTL: 600 * time.Second})
	lock := func(sess *session.Session, name string, _ int) func() error {
		mu := locker.NewMutex(sess, name)
		return func() error { return mu.Do(ctx, func(context.Context, *locker.Lock) error { return nil }) }
	}
	permit := func(sess *session.Session, name string, limit int) func() error {
		sem := locker.NewSemaphore(sess, name, limit)
		return func() error { return sem.Do(ctx, 1, func(context.Context, *locker.Permit) error { return nil }) }
	}
	for _, kind := range []struct {
		name string
		use  func(sess *session.Session, name string, limit int) func() error
	}{{"Mutex", lock}, {"Semaphore", permit}} {
		b.Run("Free/"+kind.name, func(b *testing.B) {
			use := kind.use(one, "free", 8)
			for b.Loop() {
				if err := use(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("HandOver/"+kind.name, func(b *testing.B) {
			mine, theirs := kind.use(one, "hand-over", 1), kind.use(other, "hand-over", 1)
			for b.Loop() {
				done := make(chan error, 1)
				go func() { done <- theirs() }()
				if err := mine(); err != nil {
					b.Fatal(err)
				}
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("Crowd/"+kind.name, func(b *testing.B) {
			use := kind.use(one, "crowd", 8)
			for b.Loop() {
				useTogether(b, 64, use)
			}
		})
	}
	b.Run("FreeBeside100/Semaphore", func(b *testing.B) {
		const held = 100
		for range held {
			if _, err := locker.NewSemaphore(other, "beside", 2*held).Acquire(ctx, 1); err != nil {
				b.Fatal(err)
			}
		}
		use := permit(one, "beside", 2*held)
		for b.Loop() {
			if err := use(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
