//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

var errNoPostgres = errors.New("no PostgreSQL: apt-get install postgresql, or give a --dsn")

// script runs a PostgreSQL in the working directory, reached only through a socket there, until stdin ends: also if
// this program is killed. Then the directory goes.
const script = `
trap '' PIPE
initdb -D data -U postgres -A trust -E UTF8 --locale=C --no-sync &&
pg_ctl -D data -l log -w -o "-k '$PWD' -c listen_addresses= -c fsync=off" start || { cat log; exit 1; } >&2
echo; echo serves
cat >/dev/null
pg_ctl -D data -m immediate stop
rm -rf "$PWD"`

// startPostgres starts a temporary PostgreSQL. stop ends it and removes its directory. The error is errNoPostgres if it
// is not installed.
func startPostgres(ctx context.Context) (dsn string, stop func(), err error) {
	path, found := postgresPath()
	if !found {
		return "", nil, errNoPostgres
	}
	// In /tmp, because the path of a socket is limited to about 100 bytes.
	dir, err := os.MkdirTemp("/tmp", "pgx-example")
	if err != nil {
		return "", nil, err
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Dir, cmd.Stderr = dir, &said
	cmd.Env = append(os.Environ(), "PATH="+path, "LC_ALL=C", "PWD="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is for this program alone, which then ends it
	if os.Getuid() == 0 {
		err = asUser(cmd, "postgres") // PostgreSQL refuses to run as root
	}
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err = errors.Join(err, err1, err2); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	out := bufio.NewScanner(stdout)
	stop = func() {
		_ = stdin.Close()
		for out.Scan() {
		}
		_ = cmd.Wait()        // stopped or not,
		_ = os.RemoveAll(dir) // nothing is to be left
	}
	for out.Scan() {
		if out.Text() == "serves" {
			return "host=" + dir + " user=postgres database=postgres", stop, nil
		}
	}
	stop()
	return "", nil, fmt.Errorf("PostgreSQL did not start:\n%s", &said)
}

// postgresPath returns a PATH on which initdb and pg_ctl are.
func postgresPath() (path string, found bool) {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // where Debian has them
	dirs = append(filepath.SplitList(os.Getenv("PATH")), dirs...)
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			return strings.Join(dirs, string(filepath.ListSeparator)), true
		}
	}
	return "", false
}

func asUser(cmd *exec.Cmd, name string) error {
	u, err := user.Lookup(name)
	if err != nil {
		return err
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return errors.Join(err1, err2, os.Chown(cmd.Dir, uid, gid))
}
