package watching

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
)

// While a value is handled, newer ones replace the one that waits, and follow does not wait to tell them.
func TestLatestSkipsWhatIsOutdated(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		errEnd := errors.New("the end")
		handling, told := make(chan struct{}), make(chan struct{})
		var handled []int
		err := Latest(t.Context(), func(ctx context.Context, tell func(int)) error {
			tell(1)
			<-handling
			for i := range 3 {
				tell(2 + i)
			}
			close(told)
			synctest.Wait() // 4 is handled
			return errEnd
		}, func(i int) bool {
			handled = append(handled, i)
			if i == 1 {
				close(handling)
				<-told
			}
			return true
		})
		if want := []int{1, 4}; !slices.Equal(handled, want) || err != errEnd {
			t.Errorf("handled %v, want %v: %v", handled, want, err)
		}
	})
}

// spawn runs a function on a goroutine.
func spawn(f func()) bool {
	go f()
	return true
}

// followUntilClosed tells 1, if first, and ends with its context, with the error that end returns.
func followUntilClosed(first bool, ended *bool, end func(ctx context.Context) error) Follow[int] {
	return func(ctx context.Context, tell func(int)) error {
		if first {
			tell(1)
		}
		<-ctx.Done()
		*ended = true
		return end(ctx)
	}
}

func TestMemoryThatIsClosedSaysSo(t *testing.T) {
	for _, end := range []func(context.Context) error{
		context.Context.Err,
		func(context.Context) error { return holdfast.ErrClosed }, // the session may be closed at the same time
	} {
		bubble.Test(t, func(t *testing.T) {
			ended := false
			m, err := Remember(t.Context(), spawn, followUntilClosed(true, &ended, end))
			if err != nil {
				t.Fatal(err)
			}
			if now, err := m.Latest(); now != 1 || err != nil {
				t.Errorf("before: %d, %v", now, err)
			}
			m.Close()
			if now, err := m.Latest(); now != 1 || err != errClosed || !ended {
				t.Errorf("closed: %d, %v; follow has ended: %v", now, err, ended)
			}
		})
	}
}

// When Remember returns an error, nothing goes on.
func TestMemoryOfNothingLeavesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ended := false
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		follow := followUntilClosed(false, &ended, context.Context.Err)
		if _, err := Remember(ctx, spawn, follow); err != context.Canceled || !ended {
			t.Errorf("canceled: %v; follow has ended: %v", err, ended)
		}
		refuse := func(func()) bool { return false }
		if _, err := Remember(t.Context(), refuse, follow); err != holdfast.ErrClosed {
			t.Errorf("closed: %v", err)
		}
		failed := errors.New("refused")
		follow = func(context.Context, func(int)) error { return failed }
		if _, err := Remember(t.Context(), spawn, follow); err != failed {
			t.Errorf("failed: %v", err)
		}
	})
}
