// Package versions tests holdfast's guarantees against older releases of the etcd server. Build one of the programs in
// this directory and pass it to the tests:
//
//	(cd tests/compat/versions/v3.5 && GOWORK=off go build -o /tmp/etcd-3.5 .)
//	go test ./tests/compat/versions -etcd /tmp/etcd-3.5
//
// Without -etcd the tests use the server of package etcdtest.
package versions_test

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	"github.com/holdfast-go/holdfast/session"
)

var etcd = flag.String("etcd", "", "test against the etcd server `program`")

func TestMain(m *testing.M) { leak.Main(m) }

// start starts a server for the duration of the test and returns its client endpoints.
func start(t *testing.T) (endpoints []string) {
	t.Helper()
	if *etcd == "" {
		return etcdtest.Start(t).Endpoints()
	}
	dir, err := os.MkdirTemp("", "etcd") // short, because the path of a Unix socket is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	// etcd requires a port, even in the name of a Unix socket.
	cmd := exec.Command(*etcd, "--data-dir", "data", "--log-level", "warn", "--unsafe-no-fsync",
		"--listen-client-urls", "unix://client:0", "--advertise-client-urls", "unix://client:0",
		"--listen-peer-urls", "unix://peer:0",
		"--initial-advertise-peer-urls", "http://localhost:1", "--initial-cluster", "default=http://localhost:1")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("log of the server:\n%s", text)
		}
	})
	return []string{"unix://" + filepath.Join(dir, "client:0")}
}

// connect returns a client, once the server answers it.
func connect(t *testing.T, endpoints []string) *clientv3.Client {
	t.Helper()
	cli, err := clientv3.New(session.ClientConfig(endpoints...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	for ctx := timeout(t); ; {
		resp, err := cli.Status(ctx, endpoints[0])
		if err == nil {
			t.Logf("etcd %s", resp.Version)
			return cli
		}
		if ctx.Err() != nil {
			t.Fatalf("the server does not answer: %v", err)
		}
	}
}

// open opens a session without logging, and closes it when the test ends.
func open(t *testing.T, cli *clientv3.Client, o session.Options) *session.Session {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	sess, err := session.New(timeout(t), cli, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sess.Close(context.Background()); err != nil && !errors.Is(err, holdfast.ErrClientClosed) {
			t.Errorf("Close: %v", err)
		}
	})
	return sess
}

// timeout returns a context with a generous timeout.
func timeout(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
