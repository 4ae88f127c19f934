//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// A target is the etcd that a campaign runs on: a cluster of its own, or the user's, of which it uses no keys but those
// below a prefix, and has no faults but those of its processes.
type target struct {
	*etcdtest.Cluster          // nil: the user's
	endpoints         []string // of that
	namespace         string   // the prefix there
	user              string   // on a cluster that asks for users; else that of etcdctl's environment
}

// foreign reports whether it is the user's.
func (t target) foreign() bool { return t.Cluster == nil }

// NewClient returns a client of all members.
func (t target) NewClient() (*clientv3.Client, error) {
	switch {
	case t.foreign():
		return connect(t.endpoints, t.namespace, t.user)
	case t.user != "":
		return connect(t.Endpoints(), "", t.user)
	}
	return t.Cluster.NewClient()
}

// eachMember returns a client of each member, and at least one.
func (t target) eachMember() (all []*clientv3.Client, err error) {
	if t.foreign() {
		for _, endpoint := range t.endpoints {
			cli, err := connect([]string{endpoint}, t.namespace, t.user)
			if err != nil {
				return all, err
			}
			all = append(all, cli)
		}
		return all, nil
	}
	for _, m := range t.Members() {
		cli, err := t.ofMember(m)
		if err != nil {
			return all, err
		}
		all = append(all, cli)
	}
	return all, nil
}

// ofMember returns a client of one member.
func (t target) ofMember(m *etcdtest.Server) (*clientv3.Client, error) {
	if t.user != "" {
		return connect(m.Endpoints(), "", t.user)
	}
	return m.NewClient()
}

// connect returns a client whose keys are all below a prefix. Certificates, and the user unless one is given, are those
// of etcdctl's environment.
func connect(endpoints []string, prefix, user string) (*clientv3.Client, error) {
	cfg := session.ClientConfig(endpoints...)
	cfg.Username, cfg.Password, _ = strings.Cut(cmp.Or(user, os.Getenv("ETCDCTL_USER")), ":")
	cfg.Password = cmp.Or(cfg.Password, os.Getenv("ETCDCTL_PASSWORD"))
	files := transport.TLSInfo{TrustedCAFile: os.Getenv("ETCDCTL_CACERT"), CertFile: os.Getenv("ETCDCTL_CERT"),
		KeyFile: os.Getenv("ETCDCTL_KEY")}
	if !files.Empty() || files.TrustedCAFile != "" {
		var err error
		if cfg.TLS, err = files.ClientConfig(); err != nil {
			return nil, err
		}
	}
	cli, err := clientv3.New(cfg)
	if err != nil || prefix == "" {
		return cli, err
	}
	cli.KV, cli.Watcher = namespace.NewKV(cli.KV, prefix), namespace.NewWatcher(cli.Watcher, prefix)
	cli.Lease = namespace.NewLease(cli.Lease, prefix)
	return cli, nil
}

// marker is the key by which a campaign knows a prefix that it has used before.
const marker = "holdfast-campaign"

// claim makes sure that no other program has keys below the prefix, and deletes what an earlier campaign has left.
func (t target) claim(ctx context.Context) (err error) {
	cli, err := t.NewClient()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cli.Close()) }()
	resp, err := cli.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	ours := len(resp.Kvs) == 0
	for _, kv := range resp.Kvs {
		ours = ours || string(kv.Key) == marker
	}
	if !ours {
		return fmt.Errorf("there are %d keys below %q, and no campaign has made them: nothing was written; take another "+
			"-namespace", len(resp.Kvs), t.namespace)
	}
	if _, err := cli.Put(ctx, marker, "go run ./tests/campaign; all keys below this prefix may be deleted"); err != nil {
		return err
	}
	for _, kv := range resp.Kvs {
		if string(kv.Key) != marker {
			_, failed := cli.Delete(ctx, string(kv.Key))
			err = errors.Join(err, failed)
		}
	}
	return err
}
