//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/family"
)

// The users of a cluster that asks for them, as NAME:PASSWORD. The judge is one of the operators.
const (
	operator = "root:a-secret"
	service  = "service:a-secret"

	// role is that of the processes.
	role = "service"
)

// all is the range that the role may read and write.
const all = "\x00"

// askForUsers makes a cluster ask for users.
func askForUsers(ctx context.Context, on target) (err error) {
	cli, err := on.Cluster.NewClient()
	if err != nil {
		return err
	}
	defer cli.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, failed := cli.RoleAdd(ctx, role)
	_, granted := cli.RoleGrantPermission(ctx, role, all, all, clientv3.PermissionType(clientv3.PermReadWrite))
	err = errors.Join(failed, granted)
	for user, role := range map[string]string{"root": "root", "service": role} {
		_, failed := cli.UserAdd(ctx, user, "a-secret")
		_, granted := cli.UserGrantRole(ctx, user, role)
		err = errors.Join(err, failed, granted)
	}
	if err == nil {
		_, err = cli.AuthEnable(ctx)
	}
	return err
}

// refusedForNow reports whether etcd refuses a call for a time: the role is withdrawn, or the store is full.
func refusedForNow(err error) bool {
	return errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrNoSpace)
}

// newSession returns a session, also if at first the role is withdrawn or the store is full: both are errors of New.
func newSession(ctx context.Context, cli *clientv3.Client, o session.Options) (*session.Session, error) {
	sess, err := session.New(ctx, cli, o)
	for refusedForNow(err) && ctx.Err() == nil {
		pauseFor(ctx, 50*time.Millisecond)
		sess, err = session.New(ctx, cli, o)
	}
	return sess, err
}

// withdrawRole takes the permission of the processes away for a time. All tokens are invalid then, and once more when
// it is given back.
func (n nemesis) withdrawRole(ctx context.Context, r *rand.Rand, _ *etcdtest.Server, _ string) {
	cli := n.history.clients[r.IntN(len(n.history.clients))]
	n.during("", "the role of the processes is withdrawn", func() {
		within, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, _ = cli.RoleRevokePermission(within, role, all, all)
		cancel()
		pauseFor(ctx, family.UpTo(r, 6*time.Second))
		n.grantRole(r)
	})
}

// grantRole gives it back.
func (n nemesis) grantRole(r *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, 5*time.Second)
		cli := n.history.clients[r.IntN(len(n.history.clients))]
		_, err := cli.RoleGrantPermission(within, role, all, all, clientv3.PermissionType(clientv3.PermReadWrite))
		cancel()
		if err == nil {
			return
		}
	}
	n.failf("the role of the processes could not be given back")
}

// rotateTokens makes all tokens invalid some times, as any change of users and roles does.
func (n nemesis) rotateTokens(ctx context.Context, r *rand.Rand, _ *etcdtest.Server, _ string) {
	n.during("", "all tokens become invalid, again and again", func() {
		for i := range 2 + r.IntN(6) {
			within, cancel := context.WithTimeout(ctx, 5*time.Second)
			_, _ = n.history.clients[0].RoleAdd(within, fmt.Sprintf("%s %d", n.shards, i))
			cancel()
			pauseFor(ctx, family.UpTo(r, time.Second))
		}
	})
}

// leader waits for the member that leads. Package etcdtest cannot ask members that ask for users.
func (n nemesis) leader(ctx context.Context) (*etcdtest.Server, error) {
	if n.cluster.user == "" {
		return n.cluster.Leader(ctx)
	}
	for {
		for i, cli := range n.history.clients {
			within, cancel := context.WithTimeout(ctx, time.Second)
			status, err := cli.Status(within, cli.Endpoints()[0])
			cancel()
			if err == nil && status.Leader == status.Header.MemberId {
				return n.cluster.Member(i), nil
			}
		}
		if pauseFor(ctx, 10*time.Millisecond); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}
