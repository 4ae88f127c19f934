package session_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/session"
)

// versions answers for the servers at some endpoints. A server with version "" does not answer.
type versions struct {
	clientv3.Maintenance // nil: a session calls Status only

	of map[string]string

	mu    sync.Mutex // protects what follows
	asked []string
}

func (v *versions) Status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	v.mu.Lock()
	v.asked = append(v.asked, endpoint)
	v.mu.Unlock()
	switch version := v.of[endpoint]; version {
	case "":
		<-ctx.Done()
		return nil, ctx.Err()
	case "refuse":
		return nil, errors.New("refused")
	default:
		return (*clientv3.StatusResponse)(&pb.StatusResponse{Version: version}), nil
	}
}

// logOf opens a session with servers of these versions, waits two minutes, closes it, and returns the lines of its log.
func logOf(t *testing.T, c *cluster, of map[string]string, endpoints ...string) (lines []string, v *versions) {
	t.Helper()
	v = &versions{of: of}
	cli := c.dial(t)
	cli.Maintenance = v
	cli.SetEndpoints(append([]string{cli.Endpoints()[0]}, endpoints...)...)
	v.of[cli.Endpoints()[0]] = "3.7.3"
	var log bytes.Buffer
	o := quiet(session.Options{})
	o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	sess, err := session.New(t.Context(), cli, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := sess.Check(); err != nil {
		t.Error(err)
	}
	time.Sleep(2 * time.Minute)
	synctest.Wait()
	if err := sess.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return strings.Split(strings.TrimSpace(log.String()), "\n"), v
}

func TestUnsupportedServersAreLoggedOnce(t *testing.T) {
	for version, old := range map[string]bool{
		"3.4.36": true, "2.3.8": true, "3.5.0": true, "3.5.27": true, "3.5.28": false, "3.5.30": false,
		"3.6.0": true, "3.6.8": true, "3.6.9-rc.0": true, "3.6.9": false, "3.6.10": false, "3.6.10-rc.0": false,
		"3.7.0-alpha.0": false, "3.7.3": false, "3.10.0": false, "4.0.0": false,
		"3.5.28+dist.2": false, "3.5.2+dist.9": true,
		"": false, "not a version": false, "3.5": false, "3.5.x": false,
	} {
		t.Run(version, func(t *testing.T) {
			start(t, func(t *testing.T, c *cluster) {
				lines, v := logOf(t, c, map[string]string{"passthrough:///a": version}, "passthrough:///a")
				warned := 0
				for _, line := range lines {
					if strings.Contains(line, "level=WARN") {
						warned++
						if !strings.Contains(line, "/a is "+version) || !strings.Contains(line, "3.5.28, 3.6.9") {
							t.Errorf("the warning lacks server, version or what is needed: %s", line)
						}
					}
				}
				if want := map[bool]int{true: 1}[old]; warned != want {
					t.Errorf("%d warnings, want %d: %q", warned, want, lines)
				}
				if len(v.asked) != 2 {
					t.Errorf("asked %q; each endpoint is asked once", v.asked)
				}
			})
		})
	}
}

func TestVersionThatIsNotAnsweredHidesNoOther(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		lines, _ := logOf(t, c, map[string]string{
			"passthrough:///user:secret@silent": "", "passthrough:///refuses": "refuse", "passthrough:///old": "3.5.1",
			"passthrough:///older": "3.4.0",
		}, "passthrough:///user:secret@silent", "passthrough:///refuses", "passthrough:///old", "passthrough:///older")
		if len(lines) != 3 || !strings.Contains(lines[0], "level=DEBUG") || !strings.Contains(lines[0], "silent") ||
			strings.Contains(lines[0], "secret") ||
			!strings.Contains(lines[1], "level=DEBUG") || !strings.Contains(lines[1], "refuses") ||
			!strings.Contains(lines[2], "level=WARN") || !strings.Contains(lines[2], "old is 3.5.1") ||
			!strings.Contains(lines[2], "older is 3.4.0") {
			t.Errorf("%q", lines)
		}
	})
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

// A session that is opened and closed at once does not wait for the replies, and one whose client has no
// Maintenance does without them.
func TestVersionsDelayNeitherNewNorClose(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		for _, maintenance := range []clientv3.Maintenance{nil, &versions{}} {
			cli := c.dial(t)
			cli.Maintenance = maintenance
			start := time.Now()
			sess, err := session.New(t.Context(), cli, quiet(session.Options{}))
			if err != nil {
				t.Fatal(err)
			}
			if err := sess.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if d := time.Since(start); d != 0 {
				t.Errorf("took %v", d)
			}
		}
	})
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
