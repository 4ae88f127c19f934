package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
)

// state is what a holder's Check returns. It counts the calls.
type state struct {
	mu      sync.Mutex // protects err and checked
	err     error
	checked int
}

func (s *state) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked++
	return s.err
}

func (s *state) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func TestSuspendedHolderIsRefusedByDefault(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write writeFunc) {
		h, kv := holding(t)
		h.check = func() error { return fmt.Errorf("lk: %w", holdfast.ErrSuspended) }
		refused(t, kv, write(t.Context(), fencing.NewFencedWriter(h)), holdfast.ErrSuspended)
	})
}

func TestWriterProceedsFencedWhileSuspended(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write writeFunc) {
		h, kv := holding(t)
		h.check = func() error { return fmt.Errorf("lk: %w", holdfast.ErrSuspended) }
		w := fencing.NewFencedWriter(h).With(fencing.WriterOptions{WhileSuspended: fencing.Proceed})
		if err := write(t.Context(), w); err != nil || kv.sent() != 1 {
			t.Errorf("%d RPCs, %v", kv.sent(), err)
		}
		kv.etcd.Delete(entry)
		if err := write(t.Context(), w); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("after the entry was removed: %v", err)
		}
	})
}

func TestWriterWaitsForASuspendedHolder(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write writeFunc) {
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
			if s.checked > 300 {
				t.Errorf("checked %d times in 30 s", s.checked)
			}
		})
	})
}

func TestWaitingEndsWithTheLoss(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write writeFunc) {
		bubble.Test(t, func(t *testing.T) {
			h, kv := holding(t)
			s := &state{err: holdfast.ErrSuspended}
			h.check = s.check
			lost := &holdfast.LostError{Err: rpctypes.ErrTimeout} // wraps an error that backoff would repeat
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
	forEachWrite(t, func(t *testing.T, write writeFunc) {
		bubble.Test(t, func(t *testing.T) {
			h, kv := holding(t)
			h.check = func() error { return holdfast.ErrSuspended }
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			start := time.Now()
			err := write(ctx, fencing.NewFencedWriter(h).With(fencing.WriterOptions{WhileSuspended: fencing.Wait}))
			refused(t, kv, err, context.DeadlineExceeded, holdfast.ErrSuspended)
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
	w := fencing.NewFencedWriter(h).With(fencing.WriterOptions{WhileSuspended: fencing.Proceed})
	_, err := w.Put(t.Context(), "k", "v")
	refused(t, kv, err, lost)
}

func TestInvalidWriterOptionsFailEveryWrite(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write writeFunc) {
		h, kv := holding(t)
		for _, c := range []struct {
			opts     fencing.WriterOptions
			argument string
		}{
			{fencing.WriterOptions{WhileSuspended: -1}, "WriterOptions.WhileSuspended"},
			{fencing.WriterOptions{WhileSuspended: 4}, "WriterOptions.WhileSuspended"},
			{fencing.WriterOptions{Retry: backoff.Policy{Max: -1}}, "WriterOptions.Retry.Max"},
			// From 5 s on etcd's client may send a write twice.
			{fencing.WriterOptions{Retry: backoff.Policy{Attempt: 5 * time.Second}}, "WriterOptions.Retry.Attempt"},
			{fencing.WriterOptions{Retry: backoff.Policy{Attempt: time.Hour}}, "WriterOptions.Retry.Attempt"},
		} {
			err := write(t.Context(), fencing.NewFencedWriter(h).With(c.opts))
			refused(t, kv, err)
			if !isArgument(err, c.argument) {
				t.Errorf("%+v: %v", c.opts, err)
			}
		}
	})
}

// From 5 s on an etcd server may answer so that its client sends a write twice.
func TestAttemptsEndWithin5s(t *testing.T) {
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

// deadlines is a KV that fails, and notes how long its last request could have taken.
type deadlines struct {
	clientv3.KV
	left time.Duration
}

func (d *deadlines) Get(ctx context.Context, _ string, _ ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if end, ok := ctx.Deadline(); ok {
		d.left = time.Until(end)
	}
	return nil, backoff.Final(errors.New("no"))
}
