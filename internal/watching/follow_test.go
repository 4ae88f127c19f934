package watching

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// followed counts the keys below a prefix, as a Follower has told.
type followed struct {
	Follower
	link  *etcdfake.Link
	reads int
	known int64
	heard int
}

func newFollowed(t *testing.T, srv *etcdfake.Server) *followed {
	t.Helper()
	f := &followed{link: srv.Link()}
	t.Cleanup(f.link.Close)
	f.Follower = Follower{
		Env: lease.Alone(f.link.Client(), backoff.Policy{}), Streams: new(Streams), From: "x/",
		Opts: []clientv3.OpOption{clientv3.WithPrefix()}, Every: time.Minute,
		Read: func(ctx context.Context) (changed bool, err error) {
			resp, err := f.Env.Client.Get(ctx, "x/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil {
				return false, err
			}
			changed = resp.Count != f.known
			f.reads, f.known = f.reads+1, resp.Count
			return changed, nil
		},
		Hear: func(_ context.Context, events []*clientv3.Event) error {
			f.heard += len(events)
			f.known += int64(len(events))
			return nil
		},
	}
	return f
}

// watch runs one watch, on a goroutine.
func (f *followed) watch(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f.Follower.watch(ctx, 1) }()
	return done
}

// silent plans that no watch tells anything.
func (f *followed) silent() {
	f.link.Plan(func(c etcdfake.Call) (fate etcdfake.Fate) {
		if c.Method == "Watch" && c.Request == nil {
			fate.Reply = 24 * time.Hour
		}
		return fate
	})
}

// slow plans how long a watch takes to be created.
func (f *followed) slow(d time.Duration) {
	f.link.Plan(func(c etcdfake.Call) (fate etcdfake.Fate) {
		if c.Method == "Watch" && c.Request != nil {
			fate.Request = d
		}
		return fate
	})
}

func TestFollowerReadsWhenItsWatchStandsAndOnceInEvery(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFollowed(t, srv)
		f.slow(time.Second / 2)
		ctx, cancel := context.WithCancel(t.Context())
		done := f.watch(ctx)
		time.Sleep(time.Second / 4)
		srv.Put("x/1", "") // before the watch stands
		time.Sleep(time.Second)
		srv.Put("x/2", "")
		srv.Put("y", "")
		time.Sleep(10 * f.Every)
		cancel()
		<-done
		if f.reads != 11 || f.known != 2 || f.heard != 1 {
			t.Errorf("%d reads, %d events, %d keys", f.reads, f.heard, f.known)
		}
	})
}

// The next watch is on another stream: this one may be silent for good.
func TestFollowerGivesUpAWatchThatHasNotToldWhatAReadFinds(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFollowed(t, srv)
		ctx, cancel := context.WithTimeout(t.Context(), 3*f.Every)
		defer cancel()
		done := f.watch(ctx)
		time.Sleep(time.Second)
		stream, _ := f.Streams.Pick()
		stream.armed()
		f.silent()
		srv.Put("x/1", "")
		began := time.Now()
		err := <-done
		if took := time.Since(began); err != nil || took > f.Every { // nil: it was healthy, so the pauses start anew
			t.Errorf("%v after %v", err, took)
		}
		if next, _ := f.Streams.Pick(); next == stream {
			t.Error("the stream is used again")
		}
	})
}

// A read that overtakes an event finds the watch behind, now and then beside a busy leader. That is no reason to pause.
func TestHealthyWatchThatIsBehindIsReplacedAtOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		const times = 10
		f := newFollowed(t, srv)
		f.Again = func(ctx context.Context) (behind bool, err error) {
			_, err = f.Read(ctx)
			return true, err
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Follow(ctx) }() // received below
		time.Sleep(times * f.Every)
		synctest.Wait()
		if f.reads != 1+2*times { // each time beside the watch, and when the next one stands
			t.Errorf("%d reads", f.reads)
		}
		cancel()
		<-done
	})
}

func TestFollowerEndsWithTheErrorOfItsUser(t *testing.T) {
	for name, fails := range map[string]struct{ read, event int }{
		"the first read": {read: 1},
		"a regular read": {read: 2},
		"an event":       {event: 1},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				f, want := newFollowed(t, srv), errors.New("failed")
				read, hear := f.Read, f.Hear
				f.Read = func(ctx context.Context) (changed bool, err error) {
					if changed, err = read(ctx); f.reads == fails.read {
						err = want
					}
					return changed, err
				}
				f.Hear = func(ctx context.Context, events []*clientv3.Event) error {
					if err := hear(ctx, events); err != nil || f.heard != fails.event {
						return err
					}
					return want
				}
				ctx, cancel := context.WithTimeout(t.Context(), 3*f.Every)
				defer cancel()
				done := f.watch(ctx)
				time.Sleep(time.Second)
				srv.Put("x/1", "")
				if err := <-done; !errors.Is(err, want) {
					t.Error(err)
				}
				synctest.Wait()
				var told atomic.Bool
				f.link.Plan(func(etcdfake.Call) (fate etcdfake.Fate) { told.Store(true); return fate })
				srv.Put("x/2", "")
				time.Sleep(time.Second)
				if told.Load() {
					t.Error("its watch goes on")
				}
			})
		})
	}
}

// Only a healthy watch that etcd has ended is followed by another one without a pause that grows.
func TestFollowerReturnsNilIfItsWatchWasHealthy(t *testing.T) {
	byServer := func(srv *etcdfake.Server, _ func()) { srv.CancelWatches(rpctypes.ErrNoLeader) }
	byCaller := func(_ *etcdfake.Server, cancel func()) { cancel() }
	for name, c := range map[string]struct {
		lived time.Duration
		end   func(srv *etcdfake.Server, cancel func())
		want  error
	}{
		"healthy":                 {HealthyAfter, byServer, nil},
		"soon":                    {HealthyAfter - 1, byServer, rpctypes.ErrNoLeader},
		"healthy, and not wanted": {2 * HealthyAfter, byCaller, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				f := newFollowed(t, srv)
				ctx, cancel := context.WithCancel(t.Context())
				done := f.watch(ctx)
				time.Sleep(c.lived)
				c.end(srv, cancel)
				err := <-done
				if !errors.Is(err, c.want) || err != nil && !etcderr.Retryable(err) {
					t.Errorf("ended with %v, want %v", err, c.want)
				}
				cancel()
			})
		})
	}
}

// A stream creates its watches one after the other, so the last one has the time of all. A slow etcd has longer.
func TestFollowerWaitsForItsWatch(t *testing.T) {
	for name, c := range map[string]struct {
		before   int // watches that are being created on the stream
		patience time.Duration
		most     time.Duration
	}{
		"alone":              {0, 1, armWait},
		"second of a stream": {1, 1, 2 * armWait},
		"of a slow etcd":     {0, 4, 4 * armWait},
	} {
		for _, late := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					f := newFollowed(t, srv)
					for range c.before {
						f.Streams.Pick()
					}
					takes := c.most - time.Millisecond
					if late {
						takes = c.most + time.Millisecond
					}
					f.slow(takes)
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					if err := f.Follower.watch(ctx, c.patience); errors.Is(err, ErrUnarmed) != late {
						t.Errorf("created after %v: %v", takes, err)
					}
				})
			})
		}
	}
}
