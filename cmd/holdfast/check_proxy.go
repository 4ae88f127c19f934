package main

import (
	"context"
	"math"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast/internal/names"
)

// proxy judges whether an endpoint is etcd's grpc-proxy. Where that cannot be asked, for want of a permission or of a
// reply, it says nothing: other checks do.
func (c *checker) proxy(ctx context.Context, timeout time.Duration, address, endpoint string) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel() // ends the watches
	if proxied, err := c.proxied(ctx, address); err == nil && proxied {
		c.fail("members", endpoint+" is etcd's grpc-proxy, which answers renewals of leases by itself",
			"Give the members' own addresses. Through the proxy sessions are lost: they send a renewal as a stream of one "+
				"message, and it ends that before it answers.")
	}
}

// proxied creates two equal watches, from a revision that is far away. The proxy joins them to one, and its reply for
// the second names no cluster.
func (c *checker) proxied(ctx context.Context, address string) (bool, error) {
	conn, err := c.cli.Dial(address)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	create := &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
		CreateRequest: &etcdserverpb.WatchCreateRequest{
			Key: []byte(names.EpochKey(c.namespace)), StartRevision: math.MaxInt64,
		},
	}}
	var created *etcdserverpb.WatchResponse
	for range 2 {
		watch, err := etcdserverpb.NewWatchClient(conn).Watch(ctx)
		if err == nil {
			err = watch.Send(create)
		}
		if err == nil {
			created, err = watch.Recv()
		}
		if err != nil || created.Canceled {
			return false, err
		}
	}
	return created.Header.GetClusterId() == 0, nil
}
