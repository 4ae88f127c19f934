package locker_test

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/locker"
)

// Transfer locks the account and calls deposit, which locks it for callers that have not.
func ExampleOptions_reentrant() {
	_, sess, _, end := example()
	defer end()

	account := locker.NewMutex(sess, "account-7").With(locker.Options{Reentrant: true})
	deposit := func(ctx context.Context) error {
		return account.Do(ctx, func(_ context.Context, lk *locker.Lock) error {
			fmt.Println("deposit:", lk.Check())
			return nil
		})
	}
	transfer := func(ctx context.Context) error {
		return account.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
			err := deposit(ctx) // the context of the Lock, so this does not wait
			fmt.Println("transfer:", lk.Check())
			return err
		})
	}
	fmt.Println(transfer(context.Background()))
	// Output:
	// deposit: <nil>
	// transfer: <nil>
	// <nil>
}
