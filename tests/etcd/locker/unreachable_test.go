package locker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// However the connection fails, every call returns when its context ends, and no retry loop spins.
func TestEveryCallRespectsItsContextWhileEtcdIsUnreachable(t *testing.T) {
	for name, cut := range map[string]func(*etcdtest.Link){
		"cut":         (*etcdtest.Link).Cut,
		"black hole":  (*etcdtest.Link).BlackHole,
		"half open":   (*etcdtest.Link).BlackHoleReplies,
		"only writes": func(l *etcdtest.Link) { l.Stall("Txn") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := etcdtest.Start(t)
			link := srv.Link(t)
			sess := open(t, link.Client(), session.Options{TTL: 60 * time.Second, CloseTimeout: time.Second})
			held := mustLock(t, locker.NewMutex(sess, "held"))
			cut(link)
			before := link.Count()
			for what, call := range map[string]func(context.Context) error{
				"Lock":    func(ctx context.Context) error { return second(locker.NewMutex(sess, "a").Lock(ctx)) },
				"TryLock": func(ctx context.Context) error { return second(locker.NewMutex(sess, "b").TryLock(ctx)) },
				"Do": func(ctx context.Context) error {
					return locker.NewMutex(sess, "c").Do(ctx, func(context.Context, *locker.Lock) error {
						t.Error("the work ran")
						return nil
					})
				},
				"Unlock": held.Unlock,
				"New": func(ctx context.Context) error {
					if name == "only writes" { // New would succeed: it sends no Txn
						<-ctx.Done()
						return ctx.Err()
					}
					_, err := session.New(ctx, link.Client(), session.Options{})
					return err
				},
			} {
				start := time.Now()
				err := call(soon(t, 300*time.Millisecond))
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v", what, err)
				}
				if d := time.Since(start); d > 10*time.Second {
					t.Errorf("%s took %v with a context of 300 ms", what, d)
				}
			}
			// Retry delays grow to a second, so each call sends only a few RPCs.
			if n := link.Count().Since(before).Total(); n > 300 {
				t.Errorf("%d RPCs were sent", n)
			}
			start := time.Now()
			if err := sess.Close(soon(t, 300*time.Millisecond)); name != "only writes" &&
				!errors.Is(err, holdfast.ErrOutcomeUnknown) {
				t.Errorf("Close: %v", err)
			}
			if d := time.Since(start); d > 10*time.Second {
				t.Errorf("Close took %v", d)
			}
		})
	}
}
