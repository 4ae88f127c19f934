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
	take := lock
	switch kind {
	case "free", "waiting":
	case "permit", "waiting-permit":
		take = permit
	default:
		return fmt.Errorf("%q is none of free, waiting, permit, waiting-permit", kind)
	}
	other, err := connect(ctx, srv)
	if err != nil {
		return err
	}
	own, err := connect(ctx, srv)
	if err != nil {
		return err
	}
	if err := coverage.WriteMetaDir(dir); err != nil {
		return err
	}
	if kind == "free" || kind == "permit" {
		err = free(ctx, own, take)
	} else {
		err = waiting(ctx, srv, own, other, take)
	}
	if err != nil {
		return err
	}
	return coverage.WriteCountersDir(dir)
}

// connect returns a session whose watches stand, so that it does nothing until it renews its lease.
func connect(ctx context.Context, srv *etcdfake.Server) (*session.Session, error) {
	sess, err := session.New(ctx, srv.Link().Client(), nil)
	time.Sleep(200 * time.Millisecond)
	return sess, err
}

// free is an acquisition of a name that is free.
func free(ctx context.Context, sess *session.Session, take taker) error {
	if err := coverage.ClearCounters(); err != nil {
		return err
	}
	release, err := take(ctx, sess)
	if err != nil {
		return err
	}
	return release(ctx)
}

// waiting is an acquisition behind another session, which releases.
func waiting(ctx context.Context, srv *etcdfake.Server, own, other *session.Session, take taker) error {
	releaseOther, err := take(ctx, other)
	if err != nil {
		return err
	}
	if err := coverage.ClearCounters(); err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { // ends with the acquisition, whose error waiting returns
		release, err := take(ctx, own)
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
type taker func(context.Context, *session.Session) (func(context.Context) error, error)

func lock(ctx context.Context, sess *session.Session) (func(context.Context) error, error) {
	lk, err := locker.NewMutex(sess, name).Lock(ctx)
	if err != nil {
		return nil, err
	}
	return lk.Unlock, nil
}

func permit(ctx context.Context, sess *session.Session) (func(context.Context) error, error) {
	p, err := locker.NewSemaphore(sess, name, 1).Acquire(ctx, 1)
	if err != nil {
		return nil, err
	}
	return p.Release, nil
}
