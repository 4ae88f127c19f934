package shard

import (
	"context"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// counted is one comparison of the number of shards, under one lease.
type counted struct {
	lease clientv3.LeaseID
	done  chan struct{} // closed when err is set
	err   error
}

// confirmCount compares the number of shards once under each lease, and again if the member's key was deleted, before a
// function is called. While the member had no key, admin.ResizeShards may have changed it. While a shard is held, it
// cannot.
func (r *run) confirmCount(ctx context.Context, lease clientv3.LeaseID) error {
	r.mu.Lock()
	c := r.counted
	first := c == nil || c.lease != lease
	if first {
		c = &counted{lease: lease, done: make(chan struct{})}
		r.counted = c
	}
	r.mu.Unlock()
	if first {
		c.err = r.shards.ensureCount(r.functions)
		close(c.done)
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ensureCount compares the number of shards with that in etcd, and puts it if there is none.
func (s *Shards) ensureCount(ctx context.Context) error {
	return backoff.Retry(ctx, s.host.Retry, s.tryCount)
}

func (s *Shards) tryCount(ctx context.Context) error {
	key := layout.Named(s.host.Namespace, holdfast.KindShard, s.name).CountKey()
	get := clientv3.OpGet(key)
	t := requests.Txn{
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
		Then: []clientv3.Op{clientv3.OpPut(key, strconv.Itoa(s.n)), get},
		Else: []clientv3.Op{get},
	}
	resp, err := t.Ask(ctx, s.host.Sender, requests.Write)
	if err != nil {
		return err
	}
	kv := resp.First(len(resp.Responses) - 1)
	if kv == nil {
		return retry.Again(fmt.Errorf("another client has deleted %s", names.Quote(key)))
	}
	switch n, err := strconv.Atoi(string(kv.Value)); {
	case err != nil || n < 1:
		return retry.Final(fmt.Errorf("the number of shards %s at %s is %.64q: put %q there", names.Quote(s.name),
			names.Quote(key), kv.Value, strconv.Itoa(s.n)))
	case n != s.n:
		return retry.Final(&CountError{Name: s.name, Count: n, Named: s.n, Key: key})
	}
	return nil
}
