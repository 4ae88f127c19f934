package watching

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
)

// While a value is handled, newer ones replace the one that waits, and follow does not wait to tell them. One that is
// the same as the last is not handled.
func TestEachSkipsWhatIsOutdated(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		errEnd := errors.New("the end")
		handling, told := make(chan struct{}), make(chan struct{})
		var handled []int
		err := Each(t.Context(), func(ctx context.Context, tell func(Dated[int])) error {
			tell(Dated[int]{Value: 1})
			<-handling
			for i := range 3 {
				tell(Dated[int]{Value: 2 + i})
			}
			close(told)
			synctest.Wait() // 4 is handled
			tell(Dated[int]{Value: 4, Sent: 1})
			synctest.Wait()
			return errEnd
		}, func(a, b int) bool { return a == b }, func(i int) bool {
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

// followUntilClosed tells 1, if first, and ends with its context, with the error that end returns.
func followUntilClosed(first bool, ended *bool, end func(ctx context.Context) error) Follow[int] {
	return func(ctx context.Context, tell func(Dated[int])) error {
		if first {
			tell(Dated[int]{Value: 1})
		}
		<-ctx.Done()
		*ended = true
		return end(ctx)
	}
}

// observe observes without a clock.
func observe(ctx context.Context, follow Follow[int]) (*Observer[int], error) {
	return Observe(ctx, follow, func() time.Duration { return 0 }, time.Second)
}

func TestObserverThatIsClosedSaysSo(t *testing.T) {
	for _, end := range []func(context.Context) error{
		context.Context.Err,
		func(context.Context) error { return holdfast.ErrClosed }, // the session may be closed at the same time
	} {
		bubble.Test(t, func(t *testing.T) {
			ended := false
			o, err := observe(t.Context(), followUntilClosed(true, &ended, end))
			if err != nil {
				t.Fatal(err)
			}
			if now := o.Current(); now.Value != 1 || now.Err != nil || !now.Trusted {
				t.Errorf("before: %+v", now)
			}
			o.Close()
			if now := o.Current(); now.Value != 1 || now.Err != errClosed || now.Trusted || !ended {
				t.Errorf("closed: %+v; follow has ended: %v", now, ended)
			}
		})
	}
}

// When Observe returns an error, nothing goes on.
func TestObserverOfNothingLeavesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ended := false
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := observe(ctx, followUntilClosed(false, &ended, context.Context.Err)); err != context.Canceled || !ended {
			t.Errorf("canceled: %v; follow has ended: %v", err, ended)
		}
		failed := errors.New("refused")
		follow := func(context.Context, func(Dated[int])) error { return failed }
		if _, err := observe(t.Context(), follow); err != failed {
			t.Errorf("failed: %v", err)
		}
	})
}
