package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/holdtest"
	"github.com/holdfast-go/holdfast/internal/queue"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/internal/watching"
)

// asSets are the ways to queue, each as a set; i is the number of the waiter.
var asSets = map[string]func(p *holdtest.Process, i int) queue.Set{
	"a mutex":     func(p *holdtest.Process, _ int) queue.Set { return queue.Set{p.Queue("x")} },
	"sets of two": func(p *holdtest.Process, _ int) queue.Set { return queue.Set{p.Queue("x"), p.Queue("y")} },
	"sets that overlap": func(p *holdtest.Process, i int) queue.Set {
		return queue.Set{p.Queue("x"), p.Queue([]string{"y", "z"}[i%2])}
	},
	"readers and writers in turn": func(p *holdtest.Process, i int) queue.Set {
		return queue.Set{[]*queue.Queue{p.Readers("x"), p.Queue("x")}[i%2]}
	},
	"locks that can be downgraded": func(p *holdtest.Process, _ int) queue.Set {
		return p.Queue("x").Downgradable()
	},
	"paths of a tree": func(p *holdtest.Process, _ int) queue.Set {
		return queue.Set{p.Readers("x"), p.Queue("y")}
	},
}

// waitAndWork has n sessions queue one after the other, each of which works for a while when it holds. What it returns
// waits for all of them, and fails the test if that has taken longer than most.
func waitAndWork(ctx context.Context, t *testing.T, srv *etcdfake.Server, n int, work time.Duration,
	queues func(p *holdtest.Process, i int) queue.Set,
) (await func(began time.Time, most time.Duration)) {
	done := make(chan error, n)
	for i := range n {
		set := queues(holdtest.Start(t, srv), i)
		go func() {
			holds, err := hold.Acquire(ctx, set, hold.Request{})
			time.Sleep(work)
			if err == nil {
				err = holds[0].Release(ctx)
			}
			done <- err
		}()
		time.Sleep(10 * kit.OneWay)
	}
	time.Sleep(time.Second)
	return func(began time.Time, most time.Duration) {
		t.Helper()
		for range n {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		took := time.Since(began)
		t.Logf("%d holds of %v took %v", n, work, took)
		if took > most {
			t.Errorf("they took longer than %v", most)
		}
	}
}

// A session that waits among many others is closed, or crashes. The holder ahead releases then.
func TestSessionThatEndsWhileItWaitsDelaysNoneOfManyBehindIt(t *testing.T) {
	const (
		waiters = 12
		work    = 10 * time.Millisecond
	)
	for name, queues := range asSets {
		for how, end := range map[string]func(srv *etcdfake.Server, p *holdtest.Process){
			"closed":  func(_ *etcdfake.Server, p *holdtest.Process) { _ = p.Sess.Close(context.Background()) },
			"crashed": func(srv *etcdfake.Server, p *holdtest.Process) { p.Link.Cut(); srv.Revoke(p.Host.Lease().ID()) },
		} {
			t.Run(name+", one "+how, func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					ctx := kit.Within(t, 10*time.Minute)
					first, err := hold.Acquire(ctx, queues(holdtest.Start(t, srv), 1), hold.Request{})
					if err != nil {
						t.Fatal(err)
					}
					ends := holdtest.Start(t, srv)
					go func() { _, _ = hold.Acquire(ctx, queues(ends, 1), hold.Request{}) }()
					time.Sleep(time.Second)
					await := waitAndWork(ctx, t, srv, waiters, work, queues)
					end(srv, ends)
					time.Sleep(time.Second)
					began := time.Now()
					holdtest.MustRelease(t, first[0])
					await(began, waiters*(work+30*kit.OneWay))
				})
			})
		}
	}
}

// The holder crashes. Each waiter behind it may have to take it for one that was revoked. But soon each has heard of a
// revision of the store at which the holder's lease had ended, and a lock delay has passed since: then it waits for a
// quarter.
func TestHolderThatCrashesDelaysThoseBehindItForAQuarterEach(t *testing.T) {
	const (
		waiters = 15
		work    = 10 * time.Millisecond
		most    = watching.ProgressEvery + 2*kit.LockDelay + waiters*kit.LockDelay/4
	)
	for name, queues := range asSets {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				ctx := kit.Within(t, 10*time.Minute)
				crashes := holdtest.Start(t, srv)
				if _, err := hold.Acquire(ctx, queues(crashes, 1), hold.Request{}); err != nil {
					t.Fatal(err)
				}
				await := waitAndWork(ctx, t, srv, waiters, work, queues)
				crashes.Link.Cut()
				srv.Revoke(crashes.Host.Lease().ID())
				await(time.Now(), most+waiters*(work+40*kit.OneWay))
			})
		})
	}
}

// More readers than session keys fit into a Txn come and go all the time, and a writer now and then.
func TestWriterBesideAHundredReadersDoesNotDelay(t *testing.T) {
	n, writes := 100, 10
	if bubble.Race {
		n, writes = 50, 3 // "long" in CI has all of them, without the race detector
	}
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, 10*time.Minute)
		stop := make(chan struct{})
		readers := make(chan error)
		for i := range n {
			q := holdtest.Start(t, srv).Readers("x")
			go func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				for {
					h, err := hold.AcquireOne(ctx, q, hold.Request{})
					time.Sleep(100 * time.Millisecond)
					if err == nil {
						err = h.Release(ctx)
					}
					select {
					case <-stop:
						readers <- err
						return
					default:
					}
				}
			}()
		}
		q := holdtest.Start(t, srv).Queue("x")
		time.Sleep(time.Second)
		for range writes {
			began := time.Now()
			h := holdtest.MustAcquire(t, q)
			if took := time.Since(began); took > time.Second/2 {
				t.Errorf("the writer waited for %v", took)
			} else {
				t.Logf("the writer waited for %v", took)
			}
			holdtest.MustRelease(t, h)
			time.Sleep(time.Second)
		}
		close(stop)
		for range n {
			if err := <-readers; err != nil {
				t.Error(err)
			}
		}
	})
}

// Each has an entry of either mode in the queue, and a session of its own.
func TestManyWaitersOfADowngradableLockDoNotDelay(t *testing.T) {
	const (
		waiters = 60
		work    = 10 * time.Millisecond
	)
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, 10*time.Minute)
		first := holdtest.MustAcquire(t, holdtest.Start(t, srv).Queue("x"))
		done := make(chan error, waiters)
		for range waiters {
			set := holdtest.Start(t, srv).Queue("x").Downgradable()
			go func() {
				holds, err := hold.Acquire(ctx, set, hold.Request{})
				time.Sleep(work)
				if err == nil {
					err = holds[0].Release(ctx)
				}
				done <- err
			}()
		}
		time.Sleep(time.Second)
		began := time.Now()
		holdtest.MustRelease(t, first)
		for range waiters {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > waiters*(work+30*kit.OneWay) {
			t.Errorf("%d holds of %v took %v", waiters, work, took)
		} else {
			t.Logf("%d holds of %v took %v", waiters, work, took)
		}
	})
}
