package shard

import (
	"context"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/requests"
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
	open, cancel := lease.WithSession(ctx, s.host.Env)
	defer cancel()
	key := s.countKey()
	get := clientv3.OpGet(key)
	t := requests.Txn{
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
		Then: []clientv3.Op{clientv3.OpPut(key, strconv.Itoa(s.n)), get},
		Else: []clientv3.Op{get},
	}
	resp, err := t.Ask(open, s.host.Sender, requests.Write)
	if err != nil {
		return lease.EndedBy(ctx, s.host.Env, err)
	}
	kv := resp.First(len(resp.Responses) - 1) // stands: it was there, or was put
	switch n, err := strconv.Atoi(string(kv.Value)); {
	case err != nil || n < 1:
		return fmt.Errorf("the number of shards %s at %s is %.64q: put %q there", names.Quote(s.name), names.Quote(key),
			kv.Value, strconv.Itoa(s.n))
	case n != s.n:
		return &CountError{Name: s.name, Count: n, Named: s.n, Key: key}
	}
	return nil
}
