package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// crowd is entries of a queue by which no client waits, with their claims. To etcd, which goes through both prefixes
// for each waiter, they are what so many waiters would be.
type crowd struct {
	prefix string
	claims string // another prefix; empty: there are none
	size   int
}

const crowdMark = "~" // sorts after what other entries begin with

// leave removes the crowd.
func (c crowd) leave(ctx context.Context, cli *clientv3.Client) error {
	if c.size == 0 {
		return nil
	}
	gone := []clientv3.Op{clientv3.OpDelete(c.prefix+crowdMark, clientv3.WithPrefix())}
	if c.claims != "" {
		gone = append(gone, clientv3.OpDelete(c.claims+crowdMark, clientv3.WithPrefix()))
	}
	_, err := cli.Txn(ctx).Then(gone...).Commit()
	return err
}

// join puts the crowd behind all that are there, with values as long as those of holdfast's entries and claims.
func (c crowd) join(ctx context.Context, cli *clientv3.Client) error {
	const entryBytes, claimBytes = 160, 30
	value := strings.Repeat("v", entryBytes)
	var puts []clientv3.Op
	for i := range c.size {
		id := fmt.Sprintf("%s%032d", crowdMark, i)
		puts = append(puts, clientv3.OpPut(c.prefix+id, value))
		if c.claims != "" {
			puts = append(puts, clientv3.OpPut(c.claims+id, value[:claimBytes]))
		}
	}
	for some := range slices.Chunk(puts, 100) {
		if _, err := cli.Txn(ctx).Then(some...).Commit(); err != nil {
			return err
		}
	}
	return nil
}
