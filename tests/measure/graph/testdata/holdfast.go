package main

import (
	"context"

	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"

	// The other packages for services.
	_ "github.com/holdfast-go/holdfast/election"
	_ "github.com/holdfast-go/holdfast/fencing/grpcfence"
	_ "github.com/holdfast-go/holdfast/fencing/httpfence"
	_ "github.com/holdfast-go/holdfast/fencing/sqlfence"
)

func lock(ctx context.Context, name string) error {
	cli, err := connect()
	if err != nil {
		return err
	}
	sess, err := session.New(ctx, cli, session.Options{})
	if err != nil {
		return err
	}
	return locker.NewMutex(sess, name).Do(ctx, func(context.Context, *locker.Lock) error { return nil })
}
