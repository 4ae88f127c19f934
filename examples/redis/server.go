//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

var errNoServer = errors.New("no Redis or Valkey: apt-get install redis-server, or give an --addr")

// script runs a server in the working directory until stdin ends: also if this program is killed.
const script = `
"$0" --port 0 --unixsocket "$PWD/socket" --save '' --appendonly no >log & server=$!
cat >/dev/null
kill $server
wait
rm -rf "$PWD"`

// startServer starts a temporary server that is reached only through a socket. stop ends it and removes its directory.
// The error is errNoServer if none is installed.
func startServer(ctx context.Context) (addr string, stop func(), err error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		program, err = exec.LookPath("valkey-server")
	}
	if err != nil {
		return "", nil, errNoServer
	}
	dir, err := os.MkdirTemp("/tmp", "redis-example") // the path of a socket is limited to about 100 bytes
	if err != nil {
		return "", nil, err
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", "-c", script, program)
	cmd.Dir, cmd.Stderr = dir, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is for this program alone, which then ends it
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	stop = func() {
		_ = stdin.Close()
		_ = cmd.Wait()        // stopped or not,
		_ = os.RemoveAll(dir) // nothing is to be left
	}
	addr = filepath.Join(dir, "socket")
	if err := ready(ctx, addr); err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "log"))
		stop()
		return "", nil, fmt.Errorf("%s did not start: %w\n%s%s", program, err, log, &said)
	}
	return addr, stop, nil
}

// ready returns when the server answers.
func ready(ctx context.Context, addr string) (err error) {
	db := redis.NewClient(&redis.Options{Network: "unix", Addr: addr, MaxRetries: -1})
	defer db.Close()
	for begin := time.Now(); time.Since(begin) < 30*time.Second; time.Sleep(10 * time.Millisecond) {
		if err = db.Ping(ctx).Err(); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}
