package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/bubble"
)

// state is what Check of a holder returns, changed from outside, and how often
// it was asked.
type state struct {
	mu    sync.Mutex
	err   error
	asked int
}

func (s *state) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return s.err
}

func (s *state) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func TestSuspendedHolderIsRefusedByDefault(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write func(context.Context, *fencing.FencedWriter) error) {
		h, kv := holding(t)
		h.check = func() error { return fmt.Errorf("lk: %w", holdfast.ErrSuspended) }
		refused(t, kv, write(t.Context(), fencing.NewFencedWriter(h)), holdfast.ErrSuspended)
	})
}

func TestSuspendedHolderProceedsOnRequest(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write func(context.Context, *fencing.FencedWriter) error) {
		h, kv := holding(t)
		h.check = func() error { return fmt.Errorf("lk: %w", holdfast.ErrSuspended) }
		w := fencing.NewFencedWriter(h).With(fencing.WriterOptions{WhileSuspended: fencing.Proceed})
		if err := write(t.Context(), w); err != nil || kv.sent() != 1 {
			t.Errorf("%d RPCs, %v", kv.sent(), err)
		}
		// The fence is etcd's comparison, whatever the policy.
		kv.remove(entry)
		if err := write(t.Context(), w); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("after the entry was removed: %v", err)
		}
	})
}

func TestSuspendedHolderIsWaitedForOnRequest(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write func(context.Context, *fencing.FencedWriter) error) {
		bubble.Test(t, func(t *testing.T) {
			h, kv := holding(t)
			s := &state{err: holdfast.ErrSuspended}
			h.check = s.check
			w := fencing.NewFencedWriter(h).With(fencing.WriterOptions{WhileSuspended: fencing.Wait})
			time.AfterFunc(30*time.Second, func() {
				if kv.sent() != 0 {
					t.Error("sent while suspended")
				}
				s.set(nil)
			})
			start := time.Now()
			if err := write(t.Context(), w); err != nil || kv.sent() != 1 {
				t.Errorf("%d RPCs, %v", kv.sent(), err)
			}
			// At most one pause late, and without spinning.
			if d := time.Since(start); d < 30*time.Second || d > 31*time.Second {
				t.Errorf("written after %v", d)
			}
			if s.asked > 300 {
				t.Errorf("asked %d times in 30 s", s.asked)
			}
		})
	})
}

func TestWaitingEndsWithTheLoss(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write func(context.Context, *fencing.FencedWriter) error) {
		bubble.Test(t, func(t *testing.T) {
			h, kv := holding(t)
			s := &state{err: holdfast.ErrSuspended}
			h.check = s.check
			// What the last renewal said is one that backoff would try again.
			lost := &lostError{rpctypes.ErrTimeout}
			time.AfterFunc(5*time.Second, func() { s.set(lost) })
			start := time.Now()
			err := write(t.Context(), fencing.NewFencedWriter(h).With(fencing.WriterOptions{WhileSuspended: fencing.Wait}))
			refused(t, kv, err, lost)
			if d := time.Since(start); d > 6*time.Second {
				t.Errorf("returned after %v", d)
			}
		})
	})
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write func(context.Context, *fencing.FencedWriter) error) {
		bubble.Test(t, func(t *testing.T) {
			h, kv := holding(t)
			h.check = func() error { return holdfast.ErrSuspended }
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			start := time.Now()
			err := write(ctx, fencing.NewFencedWriter(h).With(fencing.WriterOptions{WhileSuspended: fencing.Wait}))
			refused(t, kv, err, context.DeadlineExceeded, holdfast.ErrSuspended) // nothing was sent: nothing is unknown
			if d := time.Since(start); d != 10*time.Second {
				t.Errorf("returned after %v", d)
			}
		})
	})
}

func TestLossThatWrapsASuspensionIsFinal(t *testing.T) {
	h, kv := holding(t)
	lost := &holdfast.LostError{Err: holdfast.ErrSuspended}
	h.check = func() error { return lost }
	_, err := fencing.NewFencedWriter(h).With(fencing.WriterOptions{WhileSuspended: fencing.Proceed}).Put(t.Context(), "k", "v")
	refused(t, kv, err, lost)
}

func TestOptionsThatDoNotExistAreErrors(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write func(context.Context, *fencing.FencedWriter) error) {
		h, kv := holding(t)
		w := fencing.NewFencedWriter(h)
		for _, bad := range []fencing.WhileSuspended{-1, 3} {
			err := write(t.Context(), w.With(fencing.WriterOptions{WhileSuspended: bad}))
			refused(t, kv, err)
			var oe *holdfast.ArgumentError
			if !errors.As(err, &oe) || oe.Argument != "Options.WhileSuspended" {
				t.Errorf("error is %v", err)
			}
		}
		err := write(t.Context(), w.With(fencing.WriterOptions{Retry: backoff.Policy{Max: -1}}))
		refused(t, kv, err)
		var pe *holdfast.ArgumentError
		if !errors.As(err, &pe) {
			t.Errorf("error is %v", err)
		}
	})
}

func TestAttemptThatMaySendAWriteTwiceIsRefused(t *testing.T) {
	h, kv := holding(t)
	for _, attempt := range []time.Duration{5 * time.Second, time.Hour} {
		_, err := fencing.NewFencedWriter(h).With(fencing.WriterOptions{Retry: backoff.Policy{Attempt: attempt}}).Put(t.Context(), "k", "v")
		if !errors.As(err, new(*holdfast.ArgumentError)) || kv.sent() != 0 {
			t.Errorf("%v: %v, %d sent", attempt, err, kv.sent())
		}
	}
}

// Each RPC of a bump ends before an etcd server would answer DeadlineExceeded.
func TestAttemptsOfABumpAndOfMarksEndWithin5s(t *testing.T) {
	seen := &deadlines{}
	m, err := fencing.NewEtcdMarks(seen, &fencing.EtcdMarksOptions{Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(context.Context) error{
		"bump":  func(ctx context.Context) error { _, err := fencing.BumpEpoch(ctx, seen, "", 1, &journal{}); return err },
		"admit": func(ctx context.Context) error { return m.Admit(ctx, "r", claim(5)) },
		"reset": func(ctx context.Context) error { return m.Reset(ctx, "r", &journal{}) },
	} {
		seen.left = 0
		if err := call(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
		if seen.left <= 0 || seen.left >= 5*time.Second {
			t.Errorf("%s: an attempt may take %v", name, seen.left)
		}
	}
}
