package session_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/session"
)

func TestUnsupportedServersAreRecognized(t *testing.T) {
	for version, old := range map[string]bool{
		"3.4.36": true, "2.3.8": true, "3.5.0": true, "3.5.27": true, "3.5.28": false, "3.5.30": false,
		"3.6.0": true, "3.6.8": true, "3.6.9-rc.0": true, "3.6.9": false, "3.6.10": false, "3.6.10-rc.0": false,
		"3.7.0-alpha.0": false, "3.7.3": false, "3.10.0": false, "4.0.0": false,
		"3.5.28+dist.2": false, "3.5.2+dist.9": true,
		"": false, "not a version": false, "3.5": false, "3.5.x": false,
	} {
		if err := session.CheckServerVersion(version); (err != nil) != old {
			t.Errorf("CheckServerVersion(%q): %v", version, err)
		}
	}
}

func TestServersThatDoNotKeepUsersToTheirRolesAreRecognized(t *testing.T) {
	for version, leaks := range map[string]bool{
		"3.4.36": true, "3.5.28": true, "3.5.32": true, "3.5.33-rc.0": true, "3.5.33": false, "3.5.35": false,
		"3.6.9": true, "3.6.13": true, "3.6.14": false, "3.7.0": true, "3.7.0-rc.0": true, "3.7.1": false, "3.8.0": false,
		"not a version": false,
	} {
		if err := session.CheckServerRoles(version); (err != nil) != leaks {
			t.Errorf("CheckServerRoles(%q): %v", version, err)
		}
	}
}

// lines collects what a logger writes.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(bytes.Clone(line))
	return len(line), nil
}

// While etcd grants no lease, New says so after a second and each minute.
func TestNewSaysThatItWaits(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		cli := c.dial(t)
		c.hang()
		told := make(lines, 10)
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
		defer cancel()
		_, _ = session.New(ctx, cli, session.Options{Logger: slog.New(slog.NewTextHandler(told, nil))})
		if len(told) != 3 {
			t.Errorf("told %d times in 150 s, want after 1 s, 61 s and 121 s", len(told))
		}
		for range len(told) {
			if line := <-told; !strings.Contains(line, "etcd has granted no lease yet") {
				t.Error(line)
			}
		}
		time.Sleep(5 * time.Minute)
		if len(told) > 0 {
			t.Errorf("told after New has returned: %s", <-told)
		}
	})
}

// A session that gets no lease after a loss says so, too, and no more once it has one.
func TestSessionWithoutALeaseSaysThatItWaits(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		told := make(lines, 100)
		c.open(t, session.Options{Logger: slog.New(slog.NewTextHandler(told, nil))})
		count := func() (n int) {
			for len(told) > 0 {
				if strings.Contains(<-told, "etcd has granted no lease yet") {
					n++
				}
			}
			return n
		}
		c.hang()
		time.Sleep(5 * time.Minute)
		if n := count(); n < 4 || n > 5 {
			t.Errorf("told %d times in five minutes", n)
		}
		c.heal()
		time.Sleep(time.Minute)
		if count(); count() > 0 {
			t.Error("told without a reason")
		}
		time.Sleep(5 * time.Minute)
		if n := count(); n > 0 {
			t.Errorf("told %d times with a lease", n)
		}
	})
}

// The line has the reply to the latest attempt, or why there is no connection.
func TestWaitingNewSaysWhy(t *testing.T) {
	for want, fail := range map[string]func(c *cluster, n *network){
		"etcdserver: no leader": func(c *cluster, _ *network) { c.LoseLeader() },
		"no connection to etcd": func(_ *cluster, n *network) { n.refuse(true) },
		"etcd has not replied":  func(c *cluster, _ *network) { c.hang() },
	} {
		start(t, func(t *testing.T, c *cluster) {
			cli, n := c.connect(t, plain())
			fail(c, n)
			told := make(lines, 10)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			_, _ = session.New(ctx, cli, session.Options{Logger: slog.New(slog.NewTextHandler(told, nil))})
			if line := <-told; !strings.Contains(line, want) {
				t.Errorf("want %q: %s", want, line)
			}
		})
	}
}
