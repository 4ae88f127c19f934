package locker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

func TestErrorOfACallThatWaitsForItsOwnSessionSaysSo(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		one, other := kit.Start(t, srv), kit.Start(t, srv)
		permit := mustPermit(t, locker.NewSemaphore(one.Sess, "x", 1), 1)
		tree, err := locker.NewTreeMutex(one.Sess, "a").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []*kit.Process{one, other} {
			_, sem := locker.NewSemaphore(p.Sess, "x", 1).Acquire(kit.Within(t, time.Second), 1)
			_, child := locker.NewTreeMutex(p.Sess, "a/b").Lock(kit.Within(t, time.Second))
			for want, err := range map[string]error{`semaphore "x"`: sem, `tree "a/b"`: child} {
				if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), want) {
					t.Errorf("%s: %v", want, err)
				} else if strings.Contains(err.Error(), "this session is the holder, perhaps this goroutine") != (p == one) {
					t.Errorf("%s, of another session: %v: %v", want, p == other, err)
				}
			}
		}
		mustUnlock(t, tree)
		mustGiveBack(t, permit)
	})
}

func TestErrReentrantSaysWhichOfSeveralNamesIsHeld(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		tree := func(path string) func(context.Context) error {
			return func(ctx context.Context) error { return second(locker.NewTreeMutex(p.Sess, path).Lock(ctx)) }
		}
		outer := func(ctx context.Context, fn func(ctx context.Context) error) error {
			return locker.NewTreeMutex(p.Sess, "t/1").Do(ctx, func(ctx context.Context, _ *locker.Lock) error {
				return locker.NewMutex(p.Sess, "x").Do(ctx, func(ctx context.Context, _ *locker.Lock) error { return fn(ctx) })
			})
		}
		err := outer(t.Context(), func(ctx context.Context) error {
			for want, ask := range map[string]func(context.Context) error{
				"that lock": func(ctx context.Context) error { return second(locker.NewMutex(p.Sess, "x").Lock(ctx)) },
				`that lock: "x"`: func(ctx context.Context) error {
					return second(locker.NewSet(p.Sess, locker.Write("w"), locker.Read("x")).Lock(ctx))
				},
				`that lock: "t/1"`:          tree("t/1/2"),
				`that lock: "t", for "t/1"`: tree("t/2"),
			} {
				if err := ask(ctx); !errors.Is(err, holdfast.ErrReentrant) || !strings.HasSuffix(err.Error(), want) {
					t.Errorf("%v, want the end %s", err, want)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// A closed client is told before the session has noticed, whatever the call sends.
func TestEveryCallOverAClosedClientSaysSo(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		cli := srv.Client(t)
		sess := open(t, cli, session.Options{})
		sem := locker.NewSemaphore(sess, "x", 2)
		permit := mustPermit(t, sem, 1)
		_ = cli.Close()
		for what, call := range map[string]func(context.Context) error{
			"Acquire":    func(ctx context.Context) error { return second(sem.Acquire(ctx, 1)) },
			"TryAcquire": func(ctx context.Context) error { return second(sem.TryAcquire(ctx, 1)) },
			"Limit":      func(ctx context.Context) error { return second(sem.Limit(ctx)) },
			"Resize":     func(ctx context.Context) error { return sem.Resize(ctx, 3) },
			"TryLock": func(ctx context.Context) error {
				return second(locker.NewSet(sess, locker.Write("a"), locker.Read("b")).TryLock(ctx))
			},
		} {
			if err := call(kit.Within(t, time.Minute)); !errors.Is(err, holdfast.ErrClientClosed) {
				t.Errorf("%s: %v", what, err)
			}
		}
		err := permit.Release(kit.Within(t, time.Minute))
		unknown := errors.Is(err, holdfast.ErrOutcomeUnknown) || errors.Is(err, holdfast.ErrLost)
		if !unknown || !strings.Contains(err.Error(), `semaphore "x"`) {
			t.Errorf("Release: %v", err)
		}
	})
}

// It waits behind another goroutine of its process, and sends nothing.
func TestClosedClientEndsAWaitInTheProcess(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		cli := srv.Client(t)
		m := locker.NewMutex(open(t, cli, session.Options{}), "x")
		mustLock(t, m)
		time.AfterFunc(time.Second, func() { _ = cli.Close() })
		began := time.Now()
		_, err := m.Lock(kit.Within(t, time.Minute))
		if !errors.Is(err, holdfast.ErrClientClosed) || time.Since(began) != time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// Close ends the locks of the session, and so the context that it is given here.
func TestCloseTakesTheContextOfALock(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		err := locker.NewMutex(p.Sess, "x").Do(t.Context(), func(ctx context.Context, _ *locker.Lock) error {
			if err := p.Sess.Close(ctx); err != nil {
				t.Errorf("Close: %v", err)
			}
			kit.NothingStands(t, srv)
			return nil
		})
		if !errors.Is(err, holdfast.ErrClosed) {
			t.Error(err)
		}
	})
}

func second[T any](_ T, err error) error { return err }
