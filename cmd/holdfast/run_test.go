package main

import (
	"context"
	"log/slog"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// open opens a session on a link of its own, and closes it at the end of the test.
func open(t *testing.T, srv *etcdfake.Server) (*session.Session, *etcdfake.Link) {
	t.Helper()
	link := srv.Link()
	o := session.Options{Clock: session.MonotonicClock(), Logger: slog.New(slog.DiscardHandler)}
	sess, err := session.New(t.Context(), link.Client(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		link.Plan(nil)
		if err := sess.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return sess, link
}

// Without a quorum the connection stands, and no write has a reply. That says nothing of who holds.
func TestLockOfWhichEtcdTellsNothingIsUnavailableNotTaken(t *testing.T) {
	silent := func(c etcdfake.Call) (f etcdfake.Fate) {
		switch c.Request.(type) {
		case *pb.TxnRequest, *pb.RangeRequest:
			f.LoseRequest, f.Silent = true, true
		}
		return f
	}
	answers := func(etcdfake.Call) (f etcdfake.Fate) { return f }
	const patience = 3 * time.Second
	for name, c := range map[string]struct {
		plan func(etcdfake.Call) etcdfake.Fate
		try  bool
		wait time.Duration
		code int
	}{
		"held, --wait":      {answers, false, patience, exitNotAcquired},
		"held, --try":       {answers, true, 0, exitNotAcquired},
		"no quorum, --wait": {silent, false, patience, exitUnavailable},
		"no quorum, --try":  {silent, true, 0, exitUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				holder, _ := open(t, srv)
				sess, link := open(t, srv)
				lk, err := locker.NewMutex(holder, "x").Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				link.Plan(c.plan)
				a := &app{connection: connection{commandTimeout: patience}}
				began := time.Now()
				_, err = a.acquire(t.Context(), locker.NewMutex(sess, "x"), c.try, c.wait)
				if took := time.Since(began); exitCode(err) != c.code || took > patience+time.Second {
					t.Errorf("after %v: code %d, want %d: %v", took, exitCode(err), c.code, err)
				}
				if err := lk.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
