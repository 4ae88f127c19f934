package locker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// delay is the lock delay of all sessions below.
const delay = 200 * time.Millisecond

// BenchmarkDeadClaims tells how long a writer waits behind n readers whose session etcd has ended and whose process is
// cut off, beyond LockDelay. The readers' n claims are dead, and the writer clears them:
//
//	go test -run '^$' -bench DeadClaims -benchtime 5x ./tests/etcd/locker
func BenchmarkDeadClaims(b *testing.B) {
	srv := etcdtest.Start(b, etcdtest.Options{Fsync: true})
	ctx := context.Background()
	writer := open(b, srv.Client(b), session.Options{TTL: 600 * time.Second, LockDelay: delay})
	for _, n := range []int{1, 100, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			round := 0
			var beyond time.Duration
			for b.Loop() {
				b.StopTimer()
				name := fmt.Sprint("dead", n, "-", round)
				round++
				end := killReaders(b, srv, name, n)
				begin := time.Now()
				b.StartTimer()
				lk, err := locker.NewRWMutex(writer, name).Lock(ctx)
				b.StopTimer()
				if err != nil {
					b.Fatal(err)
				}
				beyond += time.Since(begin) - delay
				if err := lk.Unlock(ctx); err != nil {
					b.Fatal(err)
				}
				end()
				b.StartTimer()
			}
			b.ReportMetric(float64(beyond.Milliseconds())/float64(round), "ms-beyond-delay/op")
		})
	}
}

// killReaders lets n readers of a session of their own hold a lock, cuts the session off from etcd, and revokes its
// lease. end heals the session's connection, and closes it.
func killReaders(b *testing.B, srv *etcdtest.Server, name string, n int) (end func()) {
	b.Helper()
	ctx := context.Background()
	link := srv.Link(b)
	sess, err := session.New(ctx, link.Client(), session.Options{TTL: 600 * time.Second, LockDelay: delay})
	if err != nil {
		b.Fatal(err)
	}
	holdTogether(b, n, func(int) error {
		_, err := locker.NewRWMutex(sess, name).RLock(ctx)
		return err
	})
	lease := sess.Lease()
	link.Cut()
	if _, err := srv.Client(b).Revoke(ctx, lease); err != nil {
		b.Fatal(err)
	}
	return func() {
		link.Heal()
		_ = sess.Close(ctx) // it is lost
	}
}

// BenchmarkCloseOfThousand closes a session that holds 1,000 locks, and tells the requests that etcd gets for it:
//
//	go test -run '^$' -bench CloseOfThousand -benchtime 5x ./tests/etcd/locker
func BenchmarkCloseOfThousand(b *testing.B) {
	srv := etcdtest.Start(b, etcdtest.Options{Fsync: true})
	ctx := context.Background()
	link := srv.Link(b)
	round, requests := 0, 0
	for b.Loop() {
		b.StopTimer()
		sess, err := session.New(ctx, link.Client(), session.Options{TTL: 600 * time.Second})
		if err != nil {
			b.Fatal(err)
		}
		round++
		holdTogether(b, 1000, func(i int) error {
			_, err := locker.NewMutex(sess, fmt.Sprint("round", round, "/", i)).Lock(ctx)
			return err
		})
		before := link.Count()
		b.StartTimer()
		if err := sess.Close(ctx); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		requests += link.Count().Since(before).Total()
		b.StartTimer()
	}
	b.ReportMetric(float64(requests)/float64(round), "requests/op")
}

// holdTogether calls acquire n times, by 64 goroutines.
func holdTogether(b *testing.B, n int, acquire func(i int) error) {
	b.Helper()
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			for i := g; i < n; i += 64 {
				if err := acquire(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
