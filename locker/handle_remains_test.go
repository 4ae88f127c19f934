package locker_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
)

// tag is an auditor, and a value of contexts, that can be told from all others:
// what keeps something of one acquisition keeps its tag.
type tag struct {
	n int64
	_ *int // without a pointer Go may put several tags into one block and free them together
}

func (*tag) Audit(context.Context, audit.Record) {}

// A session lives for as long as its process. Whatever becomes of a lock, when it
// is over the session must not remember it: no map, no context that hangs on the
// lease, no goroutine.
func TestNothingRemainsOfALockThatIsOver(t *testing.T) {
	type try struct {
		ctx context.Context // ends with the try
		mu  *locker.Mutex
	}
	const patience = 30 * time.Second
	for name, end := range map[string]func(t *testing.T, srv *etcdfake.Server, p *kit.Process, a try){
		"unlocked": func(t *testing.T, _ *etcdfake.Server, _ *kit.Process, a try) {
			lk, err := a.mu.Lock(a.ctx)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := lk.WithContext(a.ctx)
			defer cancel()
			if err := errors.Join(context.Cause(ctx), lk.Unlock(a.ctx), lk.Unlock(a.ctx)); err != nil {
				t.Error(err)
			}
		},
		"done": func(t *testing.T, _ *etcdfake.Server, _ *kit.Process, a try) {
			if err := a.mu.Do(a.ctx, func(context.Context, *locker.Lock) error { return nil }); err != nil {
				t.Error(err)
			}
		},
		"refused": func(t *testing.T, _ *etcdfake.Server, p *kit.Process, a try) {
			lk := mustLock(t, locker.NewMutex(p.Sess, a.mu.Name()))
			if _, err := a.mu.TryLock(a.ctx); !errors.Is(err, locker.ErrLocked) {
				t.Error(err)
			}
			if err := lk.Unlock(a.ctx); err != nil {
				t.Error(err)
			}
		},
		"given up in line": func(t *testing.T, _ *etcdfake.Server, p *kit.Process, a try) {
			lk := mustLock(t, locker.NewMutex(p.Sess, a.mu.Name()))
			ctx, cancel := context.WithTimeout(a.ctx, time.Second)
			defer cancel()
			if _, err := a.mu.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if err := lk.Unlock(a.ctx); err != nil {
				t.Error(err)
			}
		},
		"given up in the queue": func(t *testing.T, srv *etcdfake.Server, _ *kit.Process, a try) {
			srv.Put("holdfast/lock/"+a.mu.Name()+"/@/other", "")
			ctx, cancel := context.WithTimeout(a.ctx, time.Second)
			defer cancel()
			if _, err := a.mu.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			srv.Delete("holdfast/lock/" + a.mu.Name() + "/@/other")
		},
		"handed over": func(t *testing.T, _ *etcdfake.Server, p *kit.Process, a try) {
			lk := mustLock(t, a.mu)
			next := lockLater(a.ctx, a.mu)
			time.Sleep(time.Second)
			if err := lk.Unlock(a.ctx); err != nil {
				t.Error(err)
			}
			if err := (<-next).lk.Unlock(a.ctx); err != nil {
				t.Error(err)
			}
		},
		"held too long": func(t *testing.T, _ *etcdfake.Server, _ *kit.Process, a try) {
			<-mustLock(t, a.mu).Done() // after MaxHold
		},
		"lost": func(t *testing.T, srv *etcdfake.Server, _ *kit.Process, a try) {
			lk := mustLock(t, a.mu)
			time.Sleep(2 * time.Second)
			srv.Delete(lk.Key())
			<-lk.Done()
		},
		"acquired with a reply lost": func(t *testing.T, _ *etcdfake.Server, p *kit.Process, a try) {
			p.Link.LoseReply("Txn", 1, 0)
			if err := mustLock(t, a.mu).Unlock(a.ctx); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := kit.Start(t, srv)
				mustLock(t, locker.NewMutex(p.Sess, "another")) // so that something remains
				time.Sleep(3 * time.Second)
				running := runtime.NumGoroutine()
				var tags []weak.Pointer[tag]
				for n := range 4 {
					mark := &tag{n: int64(n)}
					tags = append(tags, weak.Make(mark))
					ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), tag{}, mark), patience)
					opts := locker.Options{Auditor: mark, CancelOnSuspended: true, MaxHold: 10 * time.Minute}
					end(t, srv, p, try{ctx, locker.NewMutex(p.Sess, "x").With(opts)})
					cancel()
				}
				time.Sleep(2 * patience) // timers that were stopped are let go of only when they are due
				synctest.Wait()
				runtime.GC()
				if kept := slices.IndexFunc(tags, func(w weak.Pointer[tag]) bool { return w.Value() != nil }); kept >= 0 {
					t.Errorf("something keeps try %d", kept)
				}
				if n := runtime.NumGoroutine(); n > running {
					t.Errorf("%d goroutines, before there were %d", n, running)
				}
				if err := p.Sess.Check(); err != nil && !errors.Is(err, holdfast.ErrSuspended) {
					t.Errorf("the session: %v", err)
				}
			})
		})
	}
}
