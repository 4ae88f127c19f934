package etcd_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

func TestClientConfigReachesARealEtcd(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli, err := clientv3.New(session.ClientConfig(srv.Endpoints()...))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cli.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sess, err := session.New(ctx, cli, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := sess.Check(); err != nil {
		t.Error(err)
	}
	if err := sess.Close(ctx); err != nil {
		t.Error(err)
	}
}
