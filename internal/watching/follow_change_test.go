package watching_test

import (
	"context"
	"errors"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/internal/watching"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// firstPause is the first pause of a session.
const firstPause = 100 * time.Millisecond

// silence is what becomes of a message to or from a member that hangs.
var silence = etcdfake.Fate{LoseRequest: true, Silent: true, Reply: time.Hour}

// recorder records on which stream each watch of key x was made.
type recorder struct {
	clientv3.Watcher
	streams []string
}

func (r *recorder) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	if md, _ := metadata.FromOutgoingContext(ctx); key == "x" {
		r.streams = append(r.streams, md.Get("holdfast-stream")...)
	}
	return r.Watcher.Watch(ctx, key, opts...)
}

// repeated reports whether a stream had several of the watches.
func (r *recorder) repeated() bool {
	slices.Sort(r.streams)
	return len(slices.Compact(slices.Clone(r.streams))) < len(r.streams)
}

// waiter waits for the deletion of a key.
type waiter struct {
	watching.Change
	watcher *recorder
	gone    bool
	looks   int
}

func newWaiter(p *kit.Process, key string) *waiter {
	w := new(waiter)
	w.Change = watching.Change{
		Env: p.Host.Env, Streams: new(watching.Streams), Key: key,
		Over: func() bool { return w.gone },
		Look: func(ctx context.Context) error {
			resp, err := p.Host.Sender.Get(ctx, clientv3.OpGet(key))
			if err == nil {
				w.looks, w.gone = w.looks+1, len(resp.Kvs) == 0
			}
			return err
		},
		Hear: func(_ context.Context, events []*clientv3.Event) error {
			for _, event := range events {
				w.gone = w.gone || event.Type == clientv3.EventTypeDelete
			}
			return nil
		},
	}
	return w
}

// await waits on a goroutine.
func (w *waiter) await(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() { done <- w.Await(ctx) }()
	return done
}

// over fails the test unless a wait is over within a while.
func over(t *testing.T, done <-chan error, within time.Duration) {
	t.Helper()
	began := time.Now()
	if err := <-done; err != nil || time.Since(began) > within {
		t.Errorf("over after %v, want %v at most: %v", time.Since(began), within, err)
	}
}

func test(t *testing.T, f func(t *testing.T, srv *etcdfake.Server, p *kit.Process, w *waiter)) {
	t.Helper()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		cli := link.Client()
		watcher := &recorder{Watcher: cli.Watcher}
		cli.Watcher = watcher
		p := kit.StartOn(t, link, cli, func(o *session.Options) {
			o.Retry.Initial, o.Retry.Rand = firstPause, func() float64 { return 1 }
		})
		srv.Put("x", "")
		w := newWaiter(p, "x")
		w.watcher = watcher
		f(t, srv, p, w)
	})
}

func TestWatchTellsTheChange(t *testing.T) {
	test(t, func(t *testing.T, srv *etcdfake.Server, _ *kit.Process, w *waiter) {
		done := w.await(kit.Within(t, time.Hour))
		time.Sleep(time.Second)
		srv.Put("x", "again")
		srv.Delete("x")
		over(t, done, kit.Prompt)
		if w.looks != 1 {
			t.Errorf("%d looks", w.looks)
		}
	})
}

func TestLookFindsWhatNoWatchTells(t *testing.T) {
	t.Run("before the watch stands", func(t *testing.T) {
		test(t, func(t *testing.T, srv *etcdfake.Server, p *kit.Process, w *waiter) {
			const takes = time.Second / 2
			p.PlanOne("watch", etcdfake.Fate{Request: takes})
			done := w.await(kit.Within(t, time.Hour))
			time.Sleep(takes / 2)
			srv.Delete("x")
			over(t, done, takes/2+kit.Prompt)
		})
	})
	t.Run("while it lives", func(t *testing.T) {
		test(t, func(t *testing.T, srv *etcdfake.Server, _ *kit.Process, w *waiter) {
			w.Hear = func(context.Context, []*clientv3.Event) error { return nil }
			done := w.await(kit.Within(t, time.Hour))
			time.Sleep(watching.RecheckAfter * 3 / 2)
			srv.Delete("x")
			over(t, done, watching.RecheckAfter/2+kit.Prompt)
			if w.looks != 3 {
				t.Errorf("%d looks, want one when the watch stood, and one after each %v", w.looks, watching.RecheckAfter)
			}
		})
	})
	t.Run("while none can be created", func(t *testing.T) {
		test(t, func(t *testing.T, srv *etcdfake.Server, p *kit.Process, w *waiter) {
			p.PlanAll("watch", silence)
			done := w.await(kit.Within(t, time.Hour))
			time.Sleep(time.Second / 2)
			srv.Delete("x")
			over(t, done, time.Second/2+2*kit.OneWay)
		})
	})
}

// A watch on a member that hangs tells nothing, while other members would answer.
func TestWatchOnAMemberThatHangsDelaysTheWaiterUntilItsNextLook(t *testing.T) {
	test(t, func(t *testing.T, srv *etcdfake.Server, p *kit.Process, w *waiter) {
		done := w.await(kit.Within(t, time.Hour))
		time.Sleep(time.Second)
		p.PlanAll("event", silence)
		srv.Delete("x")
		over(t, done, watching.RecheckAfter)
	})
}

// A stream does not create watches, while reads are answered. The next watch is on another stream. Each one has more
// patience, so that watches do not add to the load of an etcd that is slow.
func TestWatchOnAStreamThatHangsIsMadeOnAnotherWithMorePatience(t *testing.T) {
	test(t, func(t *testing.T, srv *etcdfake.Server, p *kit.Process, w *waiter) {
		p.PlanAll("watch", silence)
		done := w.await(kit.Within(t, time.Hour))
		const long, longest = 5 * time.Minute, watching.MaxPatience * time.Second
		time.Sleep(long)
		if n, most := p.Counts()["watch"], int(long/longest)+6; n > most || n < 10 {
			t.Errorf("%d watches in %v, want 10 to %d", n, long, most)
		}
		p.Plan(nil)
		srv.Delete("x")
		over(t, done, longest+time.Second)
		if w.watcher.repeated() {
			t.Errorf("a stream that hangs is used again: %v", w.watcher.streams)
		}
	})
}

// A watch that stood for a while is replaced at once, however many have ended before.
func TestWatchThatWasHealthyIsReplacedAtOnce(t *testing.T) {
	test(t, func(t *testing.T, srv *etcdfake.Server, p *kit.Process, w *waiter) {
		w.await(kit.Within(t, time.Hour))
		time.Sleep(time.Second)
		p.Plan(nil)
		for i := range 20 {
			time.Sleep(2 * time.Second)
			srv.CancelWatches(rpctypes.ErrNoLeader)
			time.Sleep(4 * kit.OneWay)
			if n := p.Counts()["watch"]; n != i+1 {
				t.Fatalf("%d watches, want %d", n, i+1)
			}
		}
	})
}

// However many watches were not created before, one that ended is followed by one with as much patience as the first.
func TestPatienceStartsAnewAfterAHealthyWatch(t *testing.T) {
	test(t, func(t *testing.T, srv *etcdfake.Server, p *kit.Process, w *waiter) {
		p.PlanAll("watch", silence)
		done := w.await(kit.Within(t, time.Hour))
		time.Sleep(5 * time.Minute)
		p.Plan(nil)
		time.Sleep(5 * time.Minute)
		p.PlanAll("watch", silence)
		srv.CancelWatches(rpctypes.ErrNoLeader)
		time.Sleep(time.Second / 2)
		srv.Delete("x")
		over(t, done, time.Second/2+2*kit.OneWay)
	})
}

// What was heard may need a request that fails, after the wait is over.
func TestWaitThatIsOverNeedsNoFurtherWatch(t *testing.T) {
	test(t, func(t *testing.T, srv *etcdfake.Server, _ *kit.Process, w *waiter) {
		w.Hear = func(context.Context, []*clientv3.Event) error {
			w.gone = true
			return retry.Again(errors.New("not answered"))
		}
		done := w.await(kit.Within(t, time.Hour))
		time.Sleep(time.Second)
		srv.Delete("x")
		over(t, done, kit.Prompt)
		if n := len(w.watcher.streams); n != 1 {
			t.Errorf("%d watches", n)
		}
	})
}

func TestWaitEndsWithTheErrorOfItsUser(t *testing.T) {
	for name, fails := range map[string]struct{ look, events int }{
		"the first look": {look: 1},
		"a later look":   {look: 2},
		"an event":       {events: 1},
	} {
		t.Run(name, func(t *testing.T) {
			test(t, func(t *testing.T, srv *etcdfake.Server, p *kit.Process, w *waiter) {
				look, events := w.Look, 0
				w.Look = func(ctx context.Context) error {
					if err := look(ctx); err != nil || w.looks != fails.look {
						return err
					}
					return rpctypes.ErrPermissionDenied
				}
				w.Hear = func(_ context.Context, news []*clientv3.Event) error {
					if events += len(news); events != fails.events || events == 0 {
						return nil
					}
					return rpctypes.ErrPermissionDenied
				}
				p.Plan(nil)
				done := w.await(kit.Within(t, time.Minute))
				time.Sleep(time.Second)
				srv.Put("x", "again")
				if err := <-done; !errors.Is(err, rpctypes.ErrPermissionDenied) || p.Counts()["watch"] != 1 {
					t.Errorf("%v; %v", err, p.Counts())
				}
			})
		})
	}
}

// Also with the session, although its context does not end with that.
func TestWaitEndsWithItsContext(t *testing.T) {
	for want, end := range map[error]func(p *kit.Process, cancel func()){
		context.Canceled:   func(_ *kit.Process, cancel func()) { cancel() },
		holdfast.ErrClosed: func(p *kit.Process, _ func()) { _ = p.Sess.Close(context.Background()) },
	} {
		t.Run(want.Error(), func(t *testing.T) {
			test(t, func(t *testing.T, _ *etcdfake.Server, p *kit.Process, w *waiter) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := w.await(ctx)
				time.Sleep(2 * time.Second)
				ended := time.Now()
				end(p, cancel)
				if err := <-done; !errors.Is(err, want) || time.Since(ended) > kit.Prompt {
					t.Errorf("after %v: %v", time.Since(ended), err)
				}
			})
		})
	}
}
