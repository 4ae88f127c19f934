package locker_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/view"
)

// A transfer needs two accounts, whichever comes first, and rates that do not change meanwhile. What it writes about an
// account is guarded with the token of that account's lock.
func ExampleSet() {
	cli, sess, _, end := example()
	defer end()

	ctx := context.Background()
	transfer := locker.NewSet(sess, locker.Write("account/7"), locker.Write("account/3"), locker.Read("rates"))
	err := transfer.Do(ctx, func(ctx context.Context, set *locker.SetLock) error {
		account, err := set.Holder("account/7")
		if err != nil {
			return err
		}
		_, err = etcdfence.NewWriter(account).Put(ctx, "balance/7", "100")
		return err
	})
	fmt.Println("done:", err == nil)

	balance, _ := cli.Get(ctx, "balance/7")
	fmt.Printf("balance: %s\n", balance.Kvs[0].Value)
	// Output:
	// done: true
	// balance: 100
}

// Whichever of the names is taken, the error says which, and by which client.
func ExampleSet_TryLock() {
	_, mine, theirs, end := example()
	defer end()

	ctx := context.Background()
	held, _ := locker.NewMutex(theirs, "account/3").Lock(ctx)
	_, err := locker.NewSet(mine, locker.Write("account/7"), locker.Write("account/3")).TryLock(ctx)
	var failed *view.AcquireError
	if errors.As(err, &failed) {
		fmt.Println("taken:", failed.Place.Name)
	}
	_ = held.Unlock(ctx)
	// Output: taken: account/3
}

// A lock of "billing" excludes all that is below it. Two jobs below it do not exclude each other.
func ExampleTreeMutex() {
	_, mine, theirs, end := example()
	defer end()

	ctx := context.Background()
	job := locker.NewTreeMutex(mine, "billing/job-7")
	err := job.Do(ctx, func(context.Context, *locker.Lock) error {
		for _, path := range []string{"billing/job-8", "billing/job-7/part-1", "billing"} { // as another process asks
			err := locker.NewTreeMutex(theirs, path).TryDo(ctx, func(context.Context, *locker.Lock) error { return nil })
			fmt.Println(path, "is free:", err == nil)
		}
		return nil
	})
	fmt.Println("done:", err == nil)
	// Output:
	// billing/job-8 is free: true
	// billing/job-7/part-1 is free: false
	// billing is free: false
	// done: true
}

// A process rebuilds an index alone, and then serves from it beside others. No other process can rebuild it in between.
func ExampleRWMutex_LockDowngradable() {
	_, mine, theirs, end := example()
	defer end()

	ctx := context.Background()
	lk, err := locker.NewRWMutex(mine, "index").LockDowngradable(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = lk.Unlock(ctx) }() // does nothing after Downgrade
	fmt.Println("alone:", lk.Check() == nil)

	rd, err := lk.Downgrade(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = rd.Unlock(ctx) }()
	_, err = locker.NewMutex(theirs, "index").TryLock(ctx)
	fmt.Println("no writer gets in:", errors.Is(err, locker.ErrLocked))
	err = locker.NewRWMutex(theirs, "index").TryRDo(ctx, func(context.Context, *locker.ReadLock) error { return nil })
	fmt.Println("another reader does:", err == nil)
	// Output:
	// alone: true
	// no writer gets in: true
	// another reader does: true
}
