// Lock is the program that README.md shows, for an etcd at localhost:2379. It
// takes a lock and writes one key, which only the holder of the lock can do.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cli, err := session.NewClient(ctx, session.ClientConfig("localhost:2379"))
	if err != nil {
		log.Panic(err)
	}
	defer cli.Close()
	sess, err := session.New(ctx, cli, session.Options{}) // one per process, for any number of locks
	if err != nil {
		log.Panic(err)
	}
	defer sess.Close(ctx) // frees the locks at once

	mu := locker.NewMutex(sess, "billing/job-7")
	err = mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error { // ctx ends when the lock is lost
		_, err := etcdfence.NewWriter(lk).Put(ctx, "billing/job-7/state", "done")
		return err // fencing.ErrStale: the lock was lost before; nothing was written
	})
	if err != nil {
		log.Panic(err)
	}
}
