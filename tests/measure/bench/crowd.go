package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// crowd is entries of a queue by which no client waits. To etcd, which goes through the whole prefix for each waiter,
// they are what so many waiters would be.
type crowd struct {
	prefix string
	size   int
}

const crowdMark = "~" // sorts after what other entries begin with

// leave removes the crowd.
func (c crowd) leave(ctx context.Context, cli *clientv3.Client) error {
	if c.size == 0 {
		return nil
	}
	_, err := cli.Delete(ctx, c.prefix+crowdMark, clientv3.WithPrefix())
	return err
}

// join puts the crowd behind all that are there, with values as long as those of holdfast's entries.
func (c crowd) join(ctx context.Context, cli *clientv3.Client) error {
	const valueBytes = 160
	value := strings.Repeat("v", valueBytes)
	var puts []clientv3.Op
	for i := range c.size {
		puts = append(puts, clientv3.OpPut(fmt.Sprintf("%s%s%032d", c.prefix, crowdMark, i), value))
	}
	for some := range slices.Chunk(puts, 100) {
		if _, err := cli.Txn(ctx).Then(some...).Commit(); err != nil {
			return err
		}
	}
	return nil
}
