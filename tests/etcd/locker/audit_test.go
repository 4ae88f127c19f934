package locker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// Each hold gets one record of its grant and one of its end, with the cause.
func TestEveryHoldIsAuditedFromGrantToEnd(t *testing.T) {
	srv := etcdtest.Start(t)
	sess, err := session.New(t.Context(), srv.Client(t), session.Options{LockDelay: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	records := make(chan audit.Record, 10)
	mu := locker.NewMutex(sess, "job").With(locker.Options{
		Owner:   "worker 1",
		Auditor: audit.Func(func(_ context.Context, r audit.Record) { records <- r }),
	})
	for _, end := range []struct {
		event audit.Event
		end   func(*locker.Lock)
		cause holdfast.Cause
	}{
		{audit.Released, func(lk *locker.Lock) {
			if err := lk.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}, 0},
		{audit.Lost, func(lk *locker.Lock) { srv.Revoke(t, lk.Lease()) }, holdfast.CauseRevoked},
		{audit.Lost, func(*locker.Lock) {
			if err := sess.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}, holdfast.CauseClosed},
	} {
		before := time.Now()
		lk, err := mu.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		granted := <-records
		if granted.Event != audit.Granted || granted.Kind != holdfast.KindLock || granted.Name != "job" ||
			granted.Key != lk.Key() || granted.Lease != lk.Lease() || granted.Token != lk.Token() ||
			granted.At.Before(before) || granted.Err != nil {
			t.Errorf("granted: %+v", granted)
		}
		end.end(lk)
		ended := <-records
		var lost *holdfast.LostError
		if ended.Event != end.event || ended.Token != granted.Token || ended.Key != lk.Key() ||
			ended.Holder != granted.Holder || ended.Held <= 0 ||
			(end.cause != 0) != errors.As(ended.Err, &lost) || lost != nil && lost.Cause != end.cause {
			t.Errorf("ended: %+v", ended)
		}
		<-lk.Done()
	}
	if len(records) != 0 {
		t.Errorf("unexpected record: %+v", <-records)
	}
}

// The auditor blocks and then panics; neither affects the lock or the session.
func TestBlockedAuditorDoesNotDelayTheLock(t *testing.T) {
	srv := etcdtest.Start(t)
	sess, err := session.New(t.Context(), srv.Client(t), session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	unblock := make(chan struct{})
	mu := locker.NewMutex(sess, "job").With(locker.Options{Auditor: audit.Func(func(_ context.Context, r audit.Record) {
		if r.Event == audit.Released {
			<-unblock
			panic("boom")
		}
	})})
	for range 2 {
		lk, err := mu.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := lk.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
	close(unblock)
	if err := sess.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
