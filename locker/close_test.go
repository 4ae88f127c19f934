package locker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// Close is the loss of every lock that is held then. A process that ends after
// it must not take the records of that along.
func TestCloseWaitsUntilTheLossesItCausesAreRecorded(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		recorded := make(chan audit.Record, 10)
		opts := locker.Options{Auditor: audit.Func(func(_ context.Context, r audit.Record) {
			if r.Event != audit.Granted {
				time.Sleep(time.Second)
				recorded <- r
			}
		})}
		mustLock(t, locker.NewMutex(p.sess, "x").With(opts))
		mustLock(t, locker.NewMutex(p.sess, "y").With(opts))
		if err := p.sess.Close(deadline(t)); err != nil {
			t.Fatal(err)
		}
		if len(recorded) != 2 {
			t.Fatalf("%d records when Close has returned, want 2", len(recorded))
		}
		if r := <-recorded; r.Event != audit.Lost || !errors.Is(r.Err, holdfast.ErrClosed) {
			t.Errorf("%v: %v", r.Event, r.Err)
		}
	})
}

// Nobody who waits on a session is left waiting when it is closed, whatever for
// and however patient the context.
func TestCloseEndsCallsWhileEtcdIsAway(t *testing.T) {
	for name, tc := range map[string]struct {
		call  func(context.Context, *locker.Mutex) error
		retry backoff.Policy
		after time.Duration
	}{
		"TryLock, asking": {
			func(ctx context.Context, mu *locker.Mutex) error { _, err := mu.TryLock(ctx); return err },
			backoff.Policy{}, time.Second,
		},
		"Lock, between two attempts": { // its lease was lost after 13.5 s
			func(ctx context.Context, mu *locker.Mutex) error { _, err := mu.Lock(ctx); return err },
			backoff.Policy{Initial: time.Minute, Max: time.Minute, Rand: func() float64 { return 1 }}, 15 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				link := srv.Link()
				sess := open(t, link.Client(), session.Options{Clock: session.MonotonicClock(), Retry: tc.retry})
				link.BlackHole()
				ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- tc.call(ctx, locker.NewMutex(sess, "x")) }() // ends with ctx
				time.Sleep(tc.after)
				if err := sess.Close(soon(t, time.Second)); !errors.Is(err, holdfast.ErrOutcomeUnknown) {
					t.Errorf("Close: %v", err)
				}
				select {
				case err := <-done:
					if !errors.Is(err, holdfast.ErrClosed) {
						t.Error(err)
					}
				case <-time.After(time.Second):
					t.Error("goes on waiting")
					cancel()
					<-done
				}
				link.Heal()
			})
		})
	}
}

// A lease that was lost is revoked a while later. Close comes in between, and
// must not leave it: renewals that were stuck may just have kept it alive.
func TestCloseLeavesNoEntryOfALeaseThatWasLostBefore(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		mustLock(t, locker.NewMutex(p.sess, "x"))
		time.Sleep(6 * time.Second) // renewed at 5 s
		p.link.BlackHole()
		lease, err := lease.Open(p.sess.Ref()).Await(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		<-lease.Context().Done()
		p.heal()
		time.Sleep(100 * time.Millisecond)
		if err := p.sess.Close(deadline(t)); err != nil {
			t.Fatal(err)
		}
		if kvs := standing(srv, "x"); len(kvs) != 0 {
			t.Errorf("when Close has returned %v stands", kvs)
		}
	})
}
