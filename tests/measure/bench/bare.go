package main

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// bareMutexes returns contenders that send the least that a queue in etcd needs, each by its own connection: a put that
// reads which key is ahead, a watch until that is deleted, a read when it is, and a delete. A watch that begins at an
// earlier revision hears of a deletion up to 100 ms late, so it begins now, and a read finds what it has missed. They
// compare nothing and survive nothing.
func bareMutexes(e *env, n int) (all []contender, err error) {
	for i := range n {
		cli, err := e.client(i)
		if err != nil {
			return nil, err
		}
		all = append(all, bareContender(cli, e.name+"/", fmt.Sprint(e.name, "/", i)))
	}
	return all, nil
}

func bareContender(cli *clientv3.Client, prefix, own string) contender {
	enter := []clientv3.Op{clientv3.OpGet(prefix, clientv3.WithLastCreate()...), clientv3.OpPut(own, "")}
	release := func(ctx context.Context) error {
		_, err := cli.Delete(ctx, own)
		return err
	}
	return func(ctx context.Context) (func(context.Context) error, error) {
		resp, err := cli.Txn(ctx).Then(enter...).Commit()
		if err != nil {
			return nil, err
		}
		if ahead := resp.Responses[0].GetResponseRange().Kvs; len(ahead) > 0 {
			err = untilGone(ctx, cli, ahead[0])
		}
		return release, err
	}
}

// untilGone waits until a read has not found a key as it was.
func untilGone(ctx context.Context, cli *clientv3.Client, was *mvccpb.KeyValue) error {
	key := string(was.Key)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for resp := range cli.Watch(ctx, key, clientv3.WithCreatedNotify(), clientv3.WithFilterPut()) {
		if err := resp.Err(); err != nil {
			return err
		}
		now, err := cli.Get(ctx, key)
		if err != nil || len(now.Kvs) == 0 || now.Kvs[0].CreateRevision != was.CreateRevision {
			return err
		}
	}
	return context.Cause(ctx)
}
