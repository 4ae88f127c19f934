package etcd_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// As in the tests with etcdfake: a loss is reported before etcd expires the lease.
func TestCutOffFromARealEtcdIsToldBeforeTheLeaseIsGone(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	events := newRecorder()
	sess, err := session.New(ctx, link.Client(), session.Options{
		TTL: 4 * time.Second, DriftMargin: time.Second, // which leaves a busy machine that long to ask etcd
		OnStateChange: events.tell, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sess.Close(context.Background()) }()
	old := sess.Lease()

	// Confirmed renewals keep the lease alive for longer than its TTL.
	if err := link.Wait(ctx, "LeaseKeepAlive", 4); err != nil {
		t.Fatal(err)
	}
	if err := sess.Check(); err != nil || sess.Lease() != old {
		t.Fatalf("after four renewals: %v", err)
	}

	link.BlackHole()
	// On a busy machine the session may have been suspended and reconnected before.
	lost := <-events
	for lost.State != holdfast.Lost {
		lost = <-events
	}
	if lost.Previous != holdfast.Suspended {
		t.Errorf("lost from state %v", lost.Previous)
	}
	resp, err := srv.Client(t).TimeToLive(ctx, old)
	if err != nil {
		t.Fatal(err)
	}
	if resp.TTL < 0 {
		t.Errorf("reported %v after etcd had expired the lease", lost.Err)
	}
	var why *holdfast.LostError
	if !errors.As(lost.Err, &why) || why.Cause != holdfast.CauseExpired || why.Lease != old {
		t.Errorf("cause: %v", lost.Err)
	}

	link.Heal()
	events.next(t, holdfast.Connected)
	if sess.Lease() == old {
		t.Error("the lost lease came back")
	}
}

// The watch of the session key reports the loss, not a renewal.
func TestLeaseRevokedInARealEtcdIsToldAtOnce(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	events := newRecorder()
	sess, err := session.New(ctx, link.Client(), session.Options{
		TTL: 600 * time.Second, OnStateChange: events.tell, Logger: slog.New(slog.DiscardHandler),
		LockDelay: time.Minute, // a quarter of it is for the question whether the lease is gone
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sess.Close(context.Background()) }()
	for range 20 {
		start := time.Now()
		if _, err := srv.Client(t).Revoke(ctx, sess.Lease()); err != nil {
			t.Fatal(err)
		}
		if lost := lossOf(t, events.next(t, holdfast.Lost)); lost.Cause != holdfast.CauseRevoked {
			t.Errorf("%v", lost)
		}
		t.Logf("reported after %v", time.Since(start))
		events.next(t, holdfast.Connected)
	}
	if n := link.Count()["LeaseKeepAlive"]; n != 0 {
		t.Errorf("%d renewals were sent", n)
	}
}
