package main

import (
	"context"
	"fmt"
	"runtime/coverage"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// acquire acquires and releases a lock or a permit, and writes to dir what that has run.
func acquire(kind, dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	srv := etcdfake.New(nil)
	defer srv.Close()
	of := lock
	switch kind {
	case "free", "waiting":
	case "permit", "waiting-permit":
		of = permit
	default:
		return fmt.Errorf("%q is none of free, waiting, permit, waiting-permit", kind)
	}
	other, err := connect(ctx, srv, of)
	if err != nil {
		return err
	}
	own, err := connect(ctx, srv, of)
	if err != nil {
		return err
	}
	if err := coverage.WriteMetaDir(dir); err != nil {
		return err
	}
	if kind == "free" || kind == "permit" {
		err = free(ctx, own)
	} else {
		err = waiting(ctx, srv, own, other)
	}
	if err != nil {
		return err
	}
	return coverage.WriteCountersDir(dir)
}

// connect returns what acquires under a session whose watches stand, so that it does nothing until it renews its lease.
// It has acquired before: what a session does only once, is done.
func connect(ctx context.Context, srv *etcdfake.Server, of func(*session.Session) taker) (taker, error) {
	sess, err := session.New(ctx, srv.Link().Client(), nil)
	if err != nil {
		return nil, err
	}
	take := of(sess)
	release, err := take(ctx)
	if err != nil {
		return nil, err
	}
	err = release(ctx)
	time.Sleep(200 * time.Millisecond)
	return take, err
}

// free is an acquisition of a name that is free.
func free(ctx context.Context, take taker) error {
	if err := coverage.ClearCounters(); err != nil {
		return err
	}
	release, err := take(ctx)
	if err != nil {
		return err
	}
	return release(ctx)
}

// waiting is an acquisition behind another session, which releases.
func waiting(ctx context.Context, srv *etcdfake.Server, own, other taker) error {
	releaseOther, err := other(ctx)
	if err != nil {
		return err
	}
	if err := coverage.ClearCounters(); err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { // ends with the acquisition, whose error waiting returns
		release, err := own(ctx)
		if err == nil {
			err = release(ctx)
		}
		failed <- err
	}()
	for len(srv.Keys("holdfast/lock/"+name+"/@/"))+len(srv.Keys("holdfast/sem/"+name+"/@/")) < 2 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond) // its watch stands
	if err := releaseOther(ctx); err != nil {
		return err
	}
	return <-failed
}

const name = "x"

// taker acquires, and returns the release.
type taker func(context.Context) (func(context.Context) error, error)

func lock(sess *session.Session) taker {
	mu := locker.NewMutex(sess, name)
	return func(ctx context.Context) (func(context.Context) error, error) {
		lk, err := mu.Lock(ctx)
		if err != nil {
			return nil, err
		}
		return lk.Unlock, nil
	}
}

func permit(sess *session.Session) taker {
	sem := locker.NewSemaphore(sess, name, 1)
	return func(ctx context.Context) (func(context.Context) error, error) {
		p, err := sem.Acquire(ctx, 1)
		if err != nil {
			return nil, err
		}
		return p.Release, nil
	}
}
