package queuetest

import (
	"testing"
	"testing/synctest"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/fakedial"
	"github.com/holdfast-go/holdfast/session"
)

// StartQuiet starts a process with an endpoint for each member, so that its session watches several of them and polls
// little. Its requests reach the link without a connection: a real one, as of Dial, costs many times as much, and these
// tests are about the session. All watches but the session's go directly to the link, because those of etcd's own
// Watcher stop virtual time.
func StartQuiet(t *testing.T, srv *etcdfake.Server, change ...func(*session.Options)) *Process {
	t.Helper()
	link := srv.Link()
	cli := fakedial.Direct(link, srv.Members())
	t.Cleanup(func() { _ = cli.Close() })
	cli.KV = clientv3.NewKV(cli) // of any other one a session limits the time of each write
	p := StartOn(t, link, cli, change...)
	synctest.Wait()
	cli.Watcher = link.Client().Watcher
	return p
}

// Dial returns a client with a real connection to each of the members.
func Dial(t *testing.T, link *etcdfake.Link, members []*etcdfake.Member) *clientv3.Client {
	t.Helper()
	cli := fakedial.Dial(t, link, members)
	cli.Maintenance = nil // sessions would ask for the version
	cli.ActiveConnection().Connect()
	synctest.Wait() // connected to each member
	return cli
}
