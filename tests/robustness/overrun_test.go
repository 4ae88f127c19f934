package robustness

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// deaf is the name of a process whose function ignores its context, and whose OnOverrun ends it.
const deaf = "deaf"

type deafJob struct {
	Endpoints []string
	Kind      string // "lock" or "election"
	Name      string
}

// runDeaf is the main function of the process. It reports its lease when it holds.
func runDeaf(ctx context.Context, _ string, j deafJob, parent *child.Parent[clientv3.LeaseID]) error {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	cli, err := clientv3.New(clientv3.Config{Endpoints: j.Endpoints, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	sess, err := session.New(ctx, cli, &session.Options{TTL: childTTL})
	if err != nil {
		return err
	}
	exit := func(*holdfast.LostError, time.Time) { os.Exit(0) }
	work := func() error {
		parent.Say("works", sess.Lease())
		select {}
	}
	if j.Kind == "lock" {
		return locker.NewMutex(sess, j.Name).With(locker.Options{OnOverrun: exit}).Do(ctx,
			func(context.Context, *locker.Lock) error { return work() })
	}
	return election.New(sess, j.Name).With(election.Options{OnOverrun: exit}).Run(ctx, "deaf",
		func(context.Context, *election.Term) error { return work() })
}

// A function ignores its context. Its process is gone before the next holder holds; one that was paused meanwhile ends
// when it goes on.
func TestProcessWhoseWorkOutlivesItsLockEndsBeforeTheNextOneHolds(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	next := open(t, srv.Client(t), session.Options{TTL: 30 * time.Second})
	for _, kind := range []string{"lock", "election"} {
		for _, fault := range []string{"cut off", "revoked", "paused"} {
			t.Run(kind+" "+fault, func(t *testing.T) {
				t.Parallel()
				link := srv.Link(t)
				name := fmt.Sprint(kind, " ", fault)
				c, err := child.Start[clientv3.LeaseID](deaf, deafJob{link.Endpoints(), kind, name})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Kill()
				lease, err := c.Await(deadline(t), "works")
				if err != nil {
					t.Fatal(err)
				}
				waiting := holdLater(t, kind, next, name)
				srv.WaitForKeys(t, "holdfast/"+kind+"/"+name+"/@/", 2)
				switch fault {
				case "cut off":
					link.BlackHole()
				case "revoked":
					if _, err := srv.Client(t).Revoke(deadline(t), lease); err != nil {
						t.Fatal(err)
					}
				case "paused":
					if err := c.Stop(deadline(t)); err != nil {
						t.Fatal(err)
					}
					<-waiting
					if err := c.Continue(); err != nil {
						t.Fatal(err)
					}
				}
				if err := c.Exited(deadline(t)); err != nil {
					t.Fatal(err)
				}
				if fault == "paused" {
					return
				}
				select {
				case <-waiting:
					t.Error("the next one holds, and the process has only just ended")
				default:
					<-waiting
				}
			})
		}
	}
}
