//go:build unix

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/examples/internal/demotest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/fencetest"
)

func TestMain(m *testing.M) { demotest.Main(m, main) }

// server starts a server, or skips the test.
func server(t *testing.T) (addr string) {
	t.Helper()
	addr, stop, err := startServer(context.WithoutCancel(t.Context()))
	if errors.Is(err, errNoServer) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return addr
}

func TestWriteOfAStaleHolderIsRefused(t *testing.T) {
	server(t)
	demotest.CheckShown(t, demotest.Output(t), true)
}

// lossy is a connection that breaks when the reply to the next request comes, if lose is set.
type lossy struct {
	net.Conn
	lose *atomic.Bool
}

func (c lossy) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.lose.CompareAndSwap(true, false) {
		_ = c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

func TestKeysAreGuarded(t *testing.T) {
	addr := server(t)
	var lose atomic.Bool
	open := func() *redis.Client {
		db := redis.NewClient(&redis.Options{
			Addr: addr, MaxRetries: -1,
			Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, "unix", addr)
				return lossy{conn, &lose}, err
			},
		})
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	db := open()
	through := func(db *redis.Client) fencetest.Write {
		g := &Guard{DB: db}
		return func(ctx context.Context, key string, c fencing.Claim, data string, _ func() error) error {
			_, err := g.Do(ctx, key, c, "SET", data)
			return err
		}
	}
	fencetest.Test(t, fencetest.Guard{
		Write: through(db),
		Other: through(open()),
		Read: func(ctx context.Context, key string) (string, error) {
			data, err := db.Get(ctx, key).Result()
			if errors.Is(err, redis.Nil) {
				return "", nil
			}
			return data, err
		},
		LoseReply: func() { lose.Store(true) },
	})
}

// What the server refuses is not done, and what a command answers is returned.
func TestAnswersOfCommands(t *testing.T) {
	addr := server(t)
	db := redis.NewClient(&redis.Options{Network: "unix", Addr: addr, MaxRetries: -1})
	defer db.Close()
	g := &Guard{DB: db}
	claim := fencing.Claim{Name: "job", Token: 7}
	for _, c := range []struct {
		command string
		args    []any
		want    any
		is      error
	}{
		{"INCRBY", []any{-10}, int64(-10), nil},
		{"HSET", []any{"field", 1}, nil, fencing.ErrNotDone}, // it is a number
		{"SET", []any{"x", "NX"}, nil, nil},                  // it is there
		{"GET", nil, "-10", nil},
	} {
		reply, err := g.Do(t.Context(), "key", claim, c.command, c.args...)
		if reply != c.want || !errors.Is(err, c.is) {
			t.Errorf("%s: %v, %v; want %v, %v", c.command, reply, err, c.want, c.is)
		}
	}
	for _, key := range []string{"", marks + "key"} {
		if _, err := g.Do(t.Context(), key, claim, "DEL"); !errors.Is(err, fencing.ErrBadClaim) {
			t.Errorf("key %q: %v", key, err)
		}
	}
}
