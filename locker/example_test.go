package locker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

// example is what the examples start from: an etcd, a client of it, and two
// sessions, as two processes would have.
func example() (cli *clientv3.Client, mine, theirs *session.Session, end func()) {
	ctx := context.Background()
	srv := etcdfake.New(etcdfake.Options{})
	cli = srv.Link().Client()
	var err error
	for _, sess := range []**session.Session{&mine, &theirs} {
		if *sess, err = session.New(ctx, cli, session.Options{}); err != nil {
			log.Fatal(err)
		}
	}
	return cli, mine, theirs, func() {
		_ = mine.Close(ctx)
		_ = theirs.Close(ctx)
		srv.Close()
	}
}

func ExampleMutex_Do() {
	_, sess, _, end := example()
	defer end()

	mu := locker.NewMutex(sess, "billing/job-7")
	err := mu.Do(context.Background(), func(ctx context.Context, lk *locker.Lock) error {
		fmt.Println("held:", lk.Check() == nil)
		return nil
	})
	fmt.Println("released:", err == nil)
	// Output:
	// held: true
	// released: true
}

func ExampleMutex_TryDo() {
	_, mine, theirs, end := example()
	defer end()

	ctx := context.Background()
	_ = locker.NewMutex(theirs, "nightly").Do(ctx, func(context.Context, *locker.Lock) error {
		err := locker.NewMutex(mine, "nightly").TryDo(ctx, func(context.Context, *locker.Lock) error {
			fmt.Println("not reached")
			return nil
		})
		if errors.Is(err, locker.ErrLocked) {
			fmt.Println("another process holds it")
		}
		return nil
	})
	// Output: another process holds it
}

func ExampleMutex_Lock() {
	_, sess, _, end := example()
	defer end()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // for the acquisition only
	defer cancel()
	lk, err := locker.NewMutex(sess, "billing/job-7").Lock(ctx)
	if err != nil {
		log.Fatal(err) // *view.AcquireError: nothing is held
	}
	defer func() { _ = lk.Unlock(context.Background()) }()

	work, stop := lk.WithContext(context.Background()) // ends when the lock is lost
	defer stop()
	fmt.Println(work.Err(), lk.Token() > 0)
	// Output: <nil> true
}

func ExampleMutex_TryLock() {
	_, mine, theirs, end := example()
	defer end()

	ctx := context.Background()
	lk, err := locker.NewMutex(theirs, "nightly").TryLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = locker.NewMutex(mine, "nightly").TryLock(ctx)
	fmt.Println("locked:", errors.Is(err, locker.ErrLocked))

	_ = lk.Unlock(ctx)
	_, err = locker.NewMutex(mine, "nightly").TryLock(ctx)
	fmt.Println("locked:", errors.Is(err, locker.ErrLocked))
	// Output:
	// locked: true
	// locked: false
}

func ExampleMutex_With() {
	_, sess, _, end := example()
	defer end()

	mu := locker.NewMutex(sess, "billing/job-7").With(locker.Options{
		Owner:             "billing-worker-3", // for people who look into etcd
		MaxHold:           time.Hour,          // a stuck worker loses the lock
		CancelOnSuspended: true,               // stop at the first doubt
	})
	err := mu.Do(context.Background(), func(context.Context, *locker.Lock) error { return nil })
	fmt.Println(err)
	// Output: <nil>
}

// Readers of a table hold together; the job that rebuilds it holds alone.
func ExampleRWMutex() {
	_, mine, theirs, end := example()
	defer end()

	ctx := context.Background()
	table, rebuild := locker.NewRWMutex(mine, "table"), locker.NewRWMutex(theirs, "table")
	err := table.RDo(ctx, func(context.Context, *locker.ReadLock) error {
		_, err := rebuild.TryLock(ctx)
		fmt.Println("rebuild beside a reader:", errors.Is(err, locker.ErrLocked))
		lk, err := locker.NewRWMutex(theirs, "table").TryRLock(ctx)
		if err != nil {
			return err
		}
		fmt.Println("another reader:", lk.Check())
		return lk.Unlock(ctx)
	})
	if err != nil {
		log.Fatal(err)
	}
	err = rebuild.Do(ctx, func(context.Context, *locker.Lock) error { return nil })
	fmt.Println("rebuild alone:", err)
	// Output:
	// rebuild beside a reader: true
	// another reader: <nil>
	// rebuild alone: <nil>
}

// An error says who holds.
func ExampleMutex_Lock_place() {
	_, mine, theirs, end := example()
	defer end()

	ctx := context.Background()
	if _, err := locker.NewMutex(theirs, "nightly").With(locker.Options{Owner: "worker-a"}).Lock(ctx); err != nil {
		log.Fatal(err)
	}
	_, err := locker.NewMutex(mine, "nightly").TryLock(ctx)
	var failed *view.AcquireError
	if errors.As(err, &failed) && failed.Place.Known() { // its text has host, pid, times and lease as well
		fmt.Println("held by", failed.Place.Holder.Owner, "with token", failed.Place.Holder.Token)
	}
	// Output: held by worker-a with token 4
}

// A program shows that it waits, and for which holder.
func ExampleOptions_onWait() {
	_, mine, theirs, end := example()
	defer end()

	ctx := context.Background()
	held, err := locker.NewMutex(theirs, "nightly").With(locker.Options{Owner: "worker-a"}).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	mu := locker.NewMutex(mine, "nightly").With(locker.Options{OnWait: func(p view.Place) {
		fmt.Println("waiting for", p.Holder.Owner, "-", p.Ahead, "ahead")
		_ = held.Unlock(ctx) // a real holder has its own reasons
	}})
	lk, err := mu.Lock(ctx)
	fmt.Println(lk.Check(), err)
	// Output:
	// waiting for worker-a - 1 ahead
	// <nil> <nil>
}

func ExampleNewMutexAt() {
	cli, sess, _, end := example()
	defer end()

	ctx := context.Background()
	// What etcdctl lock, or concurrency.NewMutex(s, "/legacy/job"), does:
	resp, err := cli.Grant(ctx, 60)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := cli.Put(ctx, fmt.Sprintf("/legacy/job/%x", resp.ID), "", clientv3.WithLease(resp.ID)); err != nil {
		log.Fatal(err)
	}

	_, err = locker.NewMutexAt(sess, "/legacy/job").TryLock(ctx)
	fmt.Println("locked:", errors.Is(err, locker.ErrLocked))
	// Output: locked: true
}

func ExampleLock_Unlock() {
	_, sess, _, end := example()
	defer end()

	ctx := context.Background()
	lk, err := locker.NewMutex(sess, "billing/job-7").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	var lost *holdfast.LostError
	switch err := lk.Unlock(ctx); {
	case err == nil:
		fmt.Println("released")
	case errors.As(err, &lost):
		fmt.Println("it had been lost:", lost.Cause)
	case errors.Is(err, holdfast.ErrOutcomeUnknown):
		fmt.Println("not answered; the session goes on releasing")
	}
	fmt.Println(lk.Check())
	// Output:
	// released
	// released by its holder
}

func ExampleLock_Check() {
	cli, sess, _, end := example()
	defer end()

	ctx := context.Background()
	lk, err := locker.NewMutex(sess, "billing/job-7").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("before:", lk.Check())

	_, _ = cli.Revoke(ctx, lk.Lease()) // an administrator's mistake
	<-lk.Done()
	var lost *holdfast.LostError
	if errors.As(lk.Check(), &lost) {
		fmt.Println("after: lost,", lost.Cause)
	}
	// Output:
	// before: <nil>
	// after: lost, revoked
}

func ExampleLock_WithContext() {
	_, sess, _, end := example()
	defer end()

	ctx := context.Background()
	lk, err := locker.NewMutex(sess, "billing/job-7").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	work, stop := lk.WithContext(ctx)
	defer stop()
	holder, ok := fencing.FromContext(work)
	fmt.Println("carries the holder:", ok && holder.Token() == lk.Token())

	_ = lk.Unlock(ctx)
	<-work.Done()
	fmt.Println(context.Cause(work))
	// Output:
	// carries the holder: true
	// released by its holder
}

func ExampleLock_Holding() {
	cli, sess, _, end := example()
	defer end()

	ctx := context.Background()
	lk, err := locker.NewMutex(sess, "billing/job-7").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	resp, err := cli.Txn(ctx).If(lk.Holding()...).Then(clientv3.OpPut("state", "mine")).Commit()
	fmt.Println(err, resp.Succeeded)

	_ = lk.Unlock(ctx)
	resp, err = cli.Txn(ctx).If(lk.Holding()...).Then(clientv3.OpPut("state", "too late")).Commit()
	fmt.Println(err, resp.Succeeded)
	// Output:
	// <nil> true
	// <nil> false
}

func ExampleCheckName() {
	fmt.Println(locker.CheckName("billing/job-7"))
	fmt.Println(locker.CheckName("billing//job-7"))
	// Output:
	// <nil>
	// lock name "billing//job-7": has an empty segment: no leading, trailing or doubled "/"
}
