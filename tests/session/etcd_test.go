package session_test

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

// The same against a real etcd: what the fake was told to do, etcd does.
func TestCutOffFromARealEtcdIsToldBeforeTheLeaseIsGone(t *testing.T) {
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	events := newRecorder()
	sess, err := session.New(ctx, link.Client(), &session.Options{
		TTL: 2 * time.Second, OnStateChange: events.tell, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sess.Close(context.Background()) }()
	old := sess.Lease()

	// Alive for longer than its TTL: renewed, and by confirmed renewals.
	if err := link.Wait(ctx, "LeaseKeepAlive", 4); err != nil {
		t.Fatal(err)
	}
	if err := sess.Check(); err != nil || sess.Lease() != old {
		t.Fatalf("after four renewals: %v", err)
	}

	link.BlackHole()
	// A busy machine may have suspended and reconnected it before.
	lost := <-events
	for lost.State != holdfast.Lost {
		lost = <-events
	}
	if lost.Previous != holdfast.Suspended {
		t.Errorf("lost out of %v", lost.Previous)
	}
	resp, err := srv.Client(t).TimeToLive(ctx, old)
	if err != nil {
		t.Fatal(err)
	}
	if resp.TTL < 0 {
		t.Errorf("told %v, when etcd had let go of the lease already", lost.Err)
	}
	var why *holdfast.LostError
	if !errors.As(lost.Err, &why) || why.Cause != holdfast.CauseExpired || why.Lease != holdfast.LeaseID(old) {
		t.Errorf("cause: %v", lost.Err)
	}

	link.Heal()
	events.next(t, holdfast.Connected)
	if sess.Lease() == old {
		t.Error("the lost lease came back")
	}
}

// The watch tells it, not a renewal.
func TestLeaseRevokedInARealEtcdIsToldAtOnce(t *testing.T) {
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	events := newRecorder()
	sess, err := session.New(ctx, link.Client(), &session.Options{
		TTL: 600 * time.Second, OnStateChange: events.tell, Logger: slog.New(slog.DiscardHandler),
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
		t.Logf("told after %v", time.Since(start))
		events.next(t, holdfast.Connected)
	}
	if n := link.Count()["LeaseKeepAlive"]; n != 0 {
		t.Errorf("%d renewals were sent", n)
	}
}
