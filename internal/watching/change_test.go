package watching_test

import (
	"context"
	"errors"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/internal/watching"
	"slices"
	"testing"
	"testing/synctest"
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

// silentAfter is the time without any response after which the first watch of a waiter is given up.
const silentAfter = watching.ProgressAfter + watching.AnswerWithin

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
		Host: p.Host, Streams: new(watching.Streams), Key: key,
		Over: func() bool { return w.gone },
		Look: func(ctx context.Context) error {
			resp, err := p.Host.Sender().Get(ctx, clientv3.OpGet(key))
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
	t.Run("while it is silent, and there is patience", func(t *testing.T) {
		test(t, func(t *testing.T, srv *etcdfake.Server, p *kit.Process, w *waiter) {
			p.PlanAll("event", silence)
			done := w.await(kit.Within(t, time.Hour))
			const before = 1 + 2 + 4 + 8 // the patience with four watches
			time.Sleep(before*(watching.AnswerWithin+time.Second) + 4*watching.ProgressAfter)
			srv.Delete("x")
			over(t, done, watching.RecheckAfter+kit.Prompt)
			if n := len(w.watcher.streams); n != 5 {
				t.Errorf("%d watches", n)
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

// A watch on a member that hangs tells nothing, while other members would answer. The waiter
// notices that its stream is silent and looks.
func TestWatchOnAMemberThatHangsIsGivenUp(t *testing.T) {
	test(t, func(t *testing.T, srv *etcdfake.Server, p *kit.Process, w *waiter) {
		done := w.await(kit.Within(t, time.Hour))
		time.Sleep(time.Second)
		p.PlanAll("event", silence) // and progress
		srv.Delete("x")
		over(t, done, silentAfter+time.Second)
		if w.watcher.repeated() {
			t.Errorf("the stream that is silent is used again: %v", w.watcher.streams)
		}
	})
}

// A stream that answers is kept, however long nothing happens. Progress is requested once for
// all watches on it.
func TestQuietWatchIsKept(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		const waiters = 10
		var streams watching.Streams
		for i := range waiters {
			key := string(rune('a' + i))
			srv.Put(key, "")
			w := newWaiter(p, key)
			w.Streams = &streams
			w.await(kit.Within(t, time.Hour))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		before := p.Link.Count()["Watch"]
		time.Sleep(time.Minute)
		sent := p.Link.Count()["Watch"] - before
		const of = waiters / 2 // two watches are created on each stream at a time
		const each = int(time.Minute / watching.ProgressAfter)
		if most := of * each; sent > most || sent < of*(each-1) {
			t.Errorf("%d messages on %d streams in a minute, want %d for each stream", sent, of, each)
		}
	})
}

// A stream hangs, while reads are answered. The next watch is on another stream. Each one has more patience, so that
// watches do not add to the load of an etcd that is slow.
func TestWatchOnAStreamThatHangsIsMadeOnAnotherWithMorePatience(t *testing.T) {
	for kind, c := range map[string]struct {
		first, longest time.Duration // the patience with one watch
		least          int
	}{
		"watch": {time.Second, watching.MaxPatience * time.Second, 10}, // is not created
		"event": {silentAfter, watching.ProgressAfter + watching.MaxPatience*watching.AnswerWithin, 5},
	} {
		t.Run(kind, func(t *testing.T) {
			test(t, func(t *testing.T, srv *etcdfake.Server, p *kit.Process, w *waiter) {
				p.PlanAll(kind, silence)
				done := w.await(kit.Within(t, time.Hour))
				const long = 5 * time.Minute
				time.Sleep(long)
				most := int(long/c.longest) + 6
				if n := p.Counts()["watch"]; n > most || n < c.least {
					t.Errorf("%d watches in %v, want %d to %d", n, long, c.least, most)
				}
				p.Plan(nil)
				srv.Delete("x")
				over(t, done, c.longest+c.first)
				if w.watcher.repeated() {
					t.Errorf("a stream that hangs is used again: %v", w.watcher.streams)
				}
			})
		})
	}
}

// A watch that stood for a while is replaced after the first pause, however many have ended before.
func TestWatchThatWasHealthyIsReplacedWithoutALongPause(t *testing.T) {
	test(t, func(t *testing.T, srv *etcdfake.Server, p *kit.Process, w *waiter) {
		w.await(kit.Within(t, time.Hour))
		time.Sleep(time.Second)
		p.Plan(nil)
		for i := range 20 {
			time.Sleep(2 * time.Second)
			srv.CancelWatches(rpctypes.ErrNoLeader)
			time.Sleep(firstPause - kit.OneWay)
			before := p.Counts()["watch"]
			time.Sleep(4 * kit.OneWay)
			if after := p.Counts()["watch"]; before != i || after != i+1 {
				t.Fatalf("%d watches before the pause was over, and then %d, want %d", before, after, i+1)
			}
		}
	})
}

// However many watches were silent before, one that ended otherwise is followed by one with as much patience as the
// first.
func TestPatienceStartsAnewAfterAHealthyWatch(t *testing.T) {
	test(t, func(t *testing.T, srv *etcdfake.Server, p *kit.Process, w *waiter) {
		p.PlanAll("event", silence)
		done := w.await(kit.Within(t, time.Hour))
		time.Sleep(5 * time.Minute)
		p.Plan(nil)
		time.Sleep(5 * time.Minute)
		srv.CancelWatches(rpctypes.ErrNoLeader)
		time.Sleep(time.Second)
		p.PlanAll("event", silence)
		srv.Delete("x")
		over(t, done, silentAfter+time.Second)
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

// A response that comes late shows that the stream is not silent, also if progress was asked for in vain before.
func TestWatchThatAnswersLateIsKept(t *testing.T) {
	test(t, func(t *testing.T, srv *etcdfake.Server, p *kit.Process, w *waiter) {
		p.PlanAll("event", etcdfake.Fate{LoseRequest: true, Silent: true}) // progress alone
		done := w.await(kit.Within(t, time.Hour))
		time.Sleep(silentAfter - watching.AskAgain/4)
		srv.Delete("x")
		over(t, done, kit.Prompt)
		if w.looks != 1 {
			t.Errorf("%d looks", w.looks)
		}
	})
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
