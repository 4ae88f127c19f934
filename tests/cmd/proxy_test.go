//go:build linux

package cmd

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/tests/internal/grpcproxy"
)

func TestCheckTellsEtcdsGRPCProxyFromAMember(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	proxy := grpcproxy.Start(t, srv.Client(t))
	for _, c := range []struct {
		endpoints []string
		proxied   bool
	}{
		{srv.Endpoints(), false},
		{[]string{proxy}, true},
		{[]string{srv.Endpoints()[0], proxy}, true}, // one of them
	} {
		p := holdfast(t, c.endpoints, "check", "--ttl=15s", "--samples=1")
		code := 0
		if c.proxied {
			code = 1
		}
		out := p.exits(code).stdout.String()
		if said := strings.Contains(out, proxy+" is etcd's grpc-proxy"); said != c.proxied {
			t.Errorf("%v: it prints %q", c.endpoints, out)
		}
	}
}
