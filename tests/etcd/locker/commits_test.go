package locker_test

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// What etcd commits, it writes to its disk, and waits for that. A waiter only reads until it holds.
func TestHandOverCommitsAPutAndARemoval(t *testing.T) {
	t.Parallel()
	type acquire = func(ctx context.Context, s *session.Session) (release func(context.Context) error, err error)
	for name, acquire := range map[string]acquire{
		"Mutex": func(ctx context.Context, s *session.Session) (func(context.Context) error, error) {
			lk, err := locker.NewMutex(s, "x").Lock(ctx)
			if err != nil {
				return nil, err
			}
			return lk.Unlock, nil
		},
		"Set": func(ctx context.Context, s *session.Session) (func(context.Context) error, error) {
			lk, err := locker.NewSet(s, locker.Write("x"), locker.Write("y")).Lock(ctx)
			if err != nil {
				return nil, err
			}
			return lk.Unlock, nil
		},
		"election": func(ctx context.Context, s *session.Session) (func(context.Context) error, error) {
			term, err := election.New(s, "x").Campaign(ctx, "")
			if err != nil {
				return nil, err
			}
			return term.Resign, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, ctx := etcdtest.Start(t), deadline(t)
			waiterLink := srv.Link(t)
			holder, waiter := open(t, srv.Client(t), session.Options{}), open(t, waiterLink.Client(), session.Options{})
			settled(t, waiterLink)
			release, err := acquire(ctx, holder)
			if err != nil {
				t.Fatal(err)
			}
			committed := func() uint64 {
				status, err := srv.Client(t).Status(ctx, srv.Endpoints()[0])
				if err != nil {
					t.Fatal(err)
				}
				return status.RaftIndex
			}
			before, sent := committed(), waiterLink.Count()["Txn"]
			held := make(chan error)
			go func() { // received below
				_, err := acquire(ctx, waiter)
				held <- err
			}()
			if err := waiterLink.Wait(ctx, "Txn", sent+2); err != nil { // it has queued, and looks once its watch stands
				t.Fatal(err)
			}
			if err := release(ctx); err != nil {
				t.Error(err)
			}
			if err := <-held; err != nil {
				t.Error(err)
			}
			if n := committed() - before; n != 2 {
				t.Errorf("etcd has committed %d requests, want the put and the removal", n)
			}
		})
	}
}
