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
	found := string(resp.First(len(resp.Responses) - 1).Value) // stands: it was there, or was put
	n, _ := strconv.Atoi(found)
	switch want := strconv.Itoa(s.n); {
	case found == want:
		return nil
	case n < 1, n == s.n: // no number, or one such as 04, which countIs takes for another
		return fmt.Errorf("the number of shards %s at %s is %.64q: put %q there", names.Quote(s.name), names.Quote(key),
			found, want)
	}
	return &CountError{Name: s.name, Count: n, Named: s.n, Key: key}
}
