package robustness

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/grpcproxy"
)

// Through etcd's grpc-proxy no renewal is answered, and so sessions are lost. docs/client.md says why it is not
// supported.
func TestSessionThroughEtcdsGRPCProxyIsLost(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	proxy := grpcproxy.Start(t, srv.Client(t))
	cli := connectWith(t, session.ClientConfig(proxy))
	lost := make(chan session.Event, 100)
	open(t, cli, session.Options{TTL: 3 * time.Second, StayLost: true, OnStateChange: func(ev session.Event) {
		if ev.State == holdfast.Lost {
			lost <- ev
		}
	}})
	if ev := <-lost; ev.Err == nil {
		t.Error("no reason")
	} else {
		t.Log(ev.Err)
	}
}
