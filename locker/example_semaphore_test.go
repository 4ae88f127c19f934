package locker_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/locker"
)

// At most ten uploads at a time, of all processes together; a large one counts for four.
func ExampleSemaphore() {
	_, sess, _, end := example()
	defer end()

	uploads := locker.NewSemaphore(sess, "uploads", 10)
	err := uploads.Do(context.Background(), 4, func(ctx context.Context, p *locker.Permit) error {
		fmt.Println("held:", p.Check() == nil, p.Weight())
		return nil // ctx is canceled when the permit is lost
	})
	fmt.Println("released:", err == nil)
	// Output:
	// held: true 4
	// released: true
}

func ExampleSemaphore_TryAcquire() {
	_, mine, theirs, end := example()
	defer end()

	ctx := context.Background()
	all, _ := locker.NewSemaphore(theirs, "uploads", 2).Acquire(ctx, 2)
	defer func() { _ = all.Release(ctx) }()
	_, err := locker.NewSemaphore(mine, "uploads", 2).TryAcquire(ctx, 1)
	fmt.Println(errors.Is(err, locker.ErrLocked))
	// Output: true
}

// From now on there are three permits. A program that still names two is told.
func ExampleSemaphore_Resize() {
	_, mine, theirs, end := example()
	defer end()

	ctx := context.Background()
	uploads := locker.NewSemaphore(mine, "uploads", 2)
	err := uploads.Resize(ctx, 3)
	fmt.Println(err)
	err = uploads.Do(ctx, 3, func(context.Context, *locker.Permit) error { return nil })
	fmt.Println(err)

	_, err = locker.NewSemaphore(theirs, "uploads", 2).Acquire(ctx, 1)
	if limit := (*holdfast.LimitError)(nil); errors.As(err, &limit) {
		fmt.Println("the limit is", limit.Limit, "and not", limit.Named)
	}
	// Output:
	// <nil>
	// <nil>
	// the limit is 3 and not 2
}
