package etcd_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	etcdversion "go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// aged queries a real server, and replaces its version by an old one.
type aged struct {
	clientv3.Maintenance
	real chan string
}

func (a aged) Status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	resp, err := a.Maintenance.Status(ctx, endpoint)
	if err == nil {
		a.real <- resp.Version
		resp.Version = "3.5.0"
	}
	return resp, err
}

func TestVersionIsAskedOfARealServer(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	real, warned := make(chan string, 1), make(chan string, 10)
	cli.Maintenance = aged{cli.Maintenance, real}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sess, err := session.New(ctx, cli, session.Options{Logger: slog.New(lineHandler(warned))})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case line := <-warned:
		if !strings.Contains(line, "unsupported etcd version") {
			t.Errorf("logged: %s", line)
		}
	case <-ctx.Done():
		t.Error("no warning")
	}
	if version := <-real; version != etcdversion.Version {
		t.Errorf("the server of the tests is %s, its library %s", version, etcdversion.Version)
	}
	if err := sess.Close(ctx); err != nil {
		t.Error(err)
	}
}

// lineHandler sends the message of each record, Info and above.
type lineHandler chan<- string

func (h lineHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo
}

func (h lineHandler) Handle(_ context.Context, r slog.Record) error { h <- r.Message; return nil }

func (h lineHandler) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h lineHandler) WithGroup(string) slog.Handler { return h }
