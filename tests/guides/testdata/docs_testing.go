package page

import (
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/session"
)

type exporter struct {
	working atomic.Bool
	batches atomic.Int64
}

func startExporter(*testing.T, *clientv3.Client) *exporter { return nil }

func newSession(*testing.T, *clientv3.Client) *session.Session { return nil }

func slow(*etcdfake.Server) *clientv3.Client { return nil }

func within(*testing.T, string, func() bool) {}
