package fencing_test

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
)

func TestMissingPermissionForTheEpochIsNamed(t *testing.T) {
	cli := etcdtest.Start(t).Client(t)
	ctx := t.Context()
	steps := []func() error{
		func() error { _, err := cli.RoleAdd(ctx, "root"); return err },
		func() error { _, err := cli.UserAdd(ctx, "root", "pw"); return err },
		func() error { _, err := cli.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := cli.RoleAdd(ctx, "stranger"); return err },
		func() error { _, err := cli.UserAdd(ctx, "stranger", "pw"); return err },
		func() error { _, err := cli.UserGrantRole(ctx, "stranger", "stranger"); return err },
		func() error { _, err := cli.AuthEnable(ctx); return err },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	stranger, err := clientv3.New(clientv3.Config{
		Endpoints: cli.Endpoints(), Username: "stranger", Password: "pw", Logger: cli.GetLogger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	_, err = etcdfence.Epoch(ctx, stranger, "ns")
	if etcderr.Classify(err) != etcderr.Unauthorized {
		t.Fatal(err)
	}
	mustSay(t, err, `"ns/epoch"`, "role grant-permission ROLE read ns/epoch")
	_, err = etcdfence.BumpEpoch(ctx, stranger, "ns", 1, quiet)
	if etcderr.Classify(err) != etcderr.Unauthorized {
		t.Fatal(err)
	}
	mustSay(t, err, `"ns/epoch"`, "role grant-permission ROLE readwrite ns/epoch")
}
