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

// countIs returns the comparison of the number of shards with that in etcd.
func (s *Shards) countIs() []clientv3.Cmp {
	return []clientv3.Cmp{clientv3.Compare(clientv3.Value(s.countKey()), "=", strconv.Itoa(s.n))}
}

func (s *Shards) countKey() string {
	return layout.Named(s.host.Namespace, holdfast.KindShard, s.name).CountKey()
}

// ensureCount compares the number of shards with that in etcd, and puts it if there is none.
func (s *Shards) ensureCount(ctx context.Context) error {
	return backoff.Retry(ctx, s.host.Retry, s.tryCount)
}

func (s *Shards) tryCount(ctx context.Context) error {
	key := s.countKey()
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
