//go:build linux

package main

import (
	"context"
	"crypto/x509"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
)

func TestPrefixWithKeysOfOthersIsRefusedAndLeftAlone(t *testing.T) {
	srv := etcdtest.Start(t)
	if _, err := srv.Client(t).Put(t.Context(), "theirs/x", "1"); err != nil {
		t.Fatal(err)
	}
	err := target{endpoints: srv.Endpoints(), namespace: "theirs/"}.claim(t.Context())
	if err == nil || !strings.Contains(err.Error(), `1 keys below "theirs/"`) {
		t.Error(err)
	}
	if kvs := srv.Keys(t, ""); len(kvs) != 1 || string(kvs[0].Value) != "1" {
		t.Errorf("it left %v", kvs)
	}
}

// The etcd asks for certificates and for a user, who may read and write below the prefix and nothing else. Others write
// there meanwhile.
func TestCampaignOnTheUsersEtcdKeepsToItsPrefix(t *testing.T) {
	dir, on := t.TempDir(), target{namespace: "campaign/"}
	own, err := transport.SelfCert(zap.NewNop(), dir, []string{"127.0.0.1:0"}, 1, x509.ExtKeyUsageClientAuth)
	if err != nil {
		t.Fatal(err)
	}
	srv := etcdtest.Start(t, etcdtest.Options{Configure: func(c *embed.Config) {
		c.ClientTLSInfo = transport.TLSInfo{CertFile: own.CertFile, KeyFile: own.KeyFile, TrustedCAFile: own.CertFile,
			ClientCertAuth: true}
		c.BcryptCost = 4 // the least
		https := []url.URL{{Scheme: "https", Host: c.ListenClientUrls[0].Host}}
		c.ListenClientUrls, c.AdvertiseClientUrls = https, https
	}})
	t.Setenv("ETCDCTL_CACERT", own.CertFile)
	t.Setenv("ETCDCTL_CERT", own.CertFile)
	t.Setenv("ETCDCTL_KEY", own.KeyFile)
	on.endpoints = srv.Endpoints()
	admin := protect(t, on)

	writing, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	others.Go(func() {
		for writing.Err() == nil {
			_, _ = admin.Put(writing, "theirs", "x")
			pauseFor(writing, 10*time.Millisecond)
		}
	})
	s, err := run(t.Context(), options{duration: time.Hour, rounds: 1, seed: 2, workers: 2, foreign: on,
		round: time.Duration(rounds.Of(20, 4)) * time.Second, out: t.ArtifactDir(), progress: t.Output()})
	stop()
	others.Wait()
	if err != nil || len(s.Violations) > 0 || s.Acquisitions == 0 {
		t.Errorf("%v\n%v", err, s)
	}
	all, err := admin.Get(t.Context(), "", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range all.Kvs {
		if key := string(kv.Key); key != "theirs" && !strings.HasPrefix(key, on.namespace) {
			t.Errorf("it left %s", key)
		}
	}
	if err := on.claim(t.Context()); err != nil {
		t.Error(err)
	}
	all, err = admin.Get(t.Context(), on.namespace, clientv3.WithPrefix())
	if err != nil || len(all.Kvs) != 1 || string(all.Kvs[0].Key) != on.namespace+marker {
		t.Errorf("when it is used again, it begins with %v, %v", all.Kvs, err)
	}
}

// protect has the etcd ask for a user. It sets the variables of one who may do something below the prefix only, and
// returns a client of the administrator.
func protect(t *testing.T, on target) *clientv3.Client {
	t.Helper()
	connected := func() *clientv3.Client {
		cli, err := connect(on.endpoints, "", "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cli.Close() })
		return cli
	}
	cli, ctx := connected(), t.Context()
	for _, do := range []func() error{
		func() error { _, err := cli.UserAdd(ctx, "root", "of the administrator"); return err },
		func() error { _, err := cli.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := cli.UserAdd(ctx, "campaign", "of the campaign"); return err },
		func() error { _, err := cli.RoleAdd(ctx, "campaign"); return err },
		func() error {
			_, err := cli.RoleGrantPermission(ctx, "campaign", on.namespace, clientv3.GetPrefixRangeEnd(on.namespace),
				clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := cli.UserGrantRole(ctx, "campaign", "campaign"); return err },
		func() error { _, err := cli.AuthEnable(ctx); return err },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("ETCDCTL_USER", "root:of the administrator")
	admin := connected()
	t.Setenv("ETCDCTL_USER", "campaign")
	t.Setenv("ETCDCTL_PASSWORD", "of the campaign")
	return admin
}
