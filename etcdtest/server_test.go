package etcdtest_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/etcdtest"
)

// os.Exit would have the race detector wait a second for races of goroutines that still run. Here none does.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(syscall.Exit)) }

// withTimeout is a context for calls that must succeed. Its timeout ends tests that hang.
func withTimeout(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func mustPut(t testing.TB, cli *clientv3.Client, key, value string) {
	t.Helper()
	if _, err := cli.Put(withTimeout(t), key, value); err != nil {
		t.Fatal(err)
	}
}

func mustGet(t testing.TB, cli *clientv3.Client, key string) (value string) {
	t.Helper()
	resp, err := cli.Get(withTimeout(t), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Kvs) == 0 {
		return ""
	}
	return string(resp.Kvs[0].Value)
}

// wait waits until c is closed.
func wait(t testing.TB, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-withTimeout(t).Done():
		t.Fatal("waited too long")
	}
}

func TestServersHaveStoresOfTheirOwn(t *testing.T) {
	for range 4 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			cli := etcdtest.Start(t).Client(t)
			if got := mustGet(t, cli, "a"); got != "" {
				t.Fatalf("a new server has a = %q", got)
			}
			mustPut(t, cli, "a", t.Name())
			if got := mustGet(t, cli, "a"); got != t.Name() {
				t.Fatalf("a = %q, want %q", got, t.Name())
			}
		})
	}
}

func TestCloseLeavesNothingBehind(t *testing.T) {
	// What Server and Cluster have in common.
	type etcd interface {
		Endpoints() []string
		NewClient() (*clientv3.Client, error)
		Close() error
	}
	for name, start := range map[string]func(etcdtest.Options) (etcd, error){
		"server":  func(o etcdtest.Options) (etcd, error) { return etcdtest.New(o) },
		"cluster": func(o etcdtest.Options) (etcd, error) { return etcdtest.NewCluster(3, o) },
	} {
		t.Run(name, func(t *testing.T) {
			others := goleak.IgnoreCurrent()
			var dirs []string
			e, err := start(etcdtest.Options{Configure: func(cfg *embed.Config) {
				dirs = append(dirs, filepath.Dir(cfg.Dir))
			}})
			if err != nil {
				t.Fatal(err)
			}
			// A member does not end streams.
			cli, err := e.NewClient()
			if err != nil {
				t.Fatal(err)
			}
			defer cli.Close()
			<-cli.Watch(t.Context(), "a", clientv3.WithCreatedNotify())
			lease, err := cli.Grant(t.Context(), 60)
			if err != nil {
				t.Fatal(err)
			}
			renewals, err := cli.KeepAlive(t.Context(), lease.ID)
			if err != nil {
				t.Fatal(err)
			}
			<-renewals

			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			cli.Close()
			if err := e.Close(); err != nil {
				t.Fatalf("Close again: %v", err)
			}
			goleak.VerifyNone(t, others)
			for _, dir := range dirs {
				if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is still there (%v)", dir, err)
				}
			}
			for _, addr := range e.Endpoints() {
				l, err := net.Listen("tcp", addr)
				if err != nil {
					t.Errorf("the port is still taken: %v", err)
					continue
				}
				l.Close()
			}
		})
	}
}

// Etcd waits a second for connections between members. One run of many that takes less shows that Close does not.
func TestCloseIsQuick(t *testing.T) {
	for fastest, run := time.Hour, 0; fastest > 900*time.Millisecond; run++ {
		if run == 20 {
			t.Fatalf("Close took %v", fastest)
		}
		c, err := etcdtest.NewCluster(3, etcdtest.Options{})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		fastest = min(fastest, time.Since(start))
	}
}

func TestStopWhileStarting(t *testing.T) {
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	for range 10 {
		srv.Stop()
		if err := srv.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	mustGet(t, cli, "a")
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	if err := srv.Restart(); err == nil {
		t.Error("a closed server restarted")
	}
}

func TestStopBreaksConnectionsAndRestartKeepsTheData(t *testing.T) {
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	mustPut(t, cli, "a", "1")
	<-cli.Watch(t.Context(), "a", clientv3.WithCreatedNotify())
	endpoints := srv.Endpoints()

	start := time.Now()
	srv.Stop()
	srv.Stop()
	if d := time.Since(start); d > 4*time.Second { // it takes milliseconds; a graceful stop would take more than 5 s
		t.Errorf("Stop took %v", d)
	}
	if _, err := net.Dial("tcp", endpoints[0]); err == nil {
		t.Fatal("a stopped server accepts connections")
	}
	if err := srv.Restart(); err != nil {
		t.Fatal(err)
	}
	if got := mustGet(t, cli, "a"); got != "1" {
		t.Fatalf("after Restart a = %q, want 1", got)
	}
	if got := srv.Endpoints(); got[0] != endpoints[0] {
		t.Fatalf("the address went from %v to %v", endpoints, got)
	}
	if err := srv.Restart(); err == nil {
		t.Fatal("Restart of a running server succeeded")
	}
}

func TestStoppedServerKeepsItsPort(t *testing.T) {
	srv := etcdtest.Start(t)
	srv.Stop()
	if l, err := net.Listen("tcp", srv.Endpoints()[0]); err == nil {
		l.Close()
		t.Fatal("the port of a stopped server is free to take")
	}
}

func TestOptionsDirIsKeptAndReused(t *testing.T) {
	opts := etcdtest.Options{Dir: t.TempDir(), Fsync: true}
	for _, want := range []string{"", "1"} {
		srv, err := etcdtest.New(opts)
		if err != nil {
			t.Fatal(err)
		}
		cli, err := srv.NewClient()
		if err != nil {
			t.Fatal(err)
		}
		if got := mustGet(t, cli, "a"); got != want {
			t.Errorf("a = %q, want %q", got, want)
		}
		mustPut(t, cli, "a", "1")
		cli.Close()
		if err := srv.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNewSaysWhatIsWrong(t *testing.T) {
	others := goleak.IgnoreCurrent()
	if _, err := etcdtest.NewCluster(0, etcdtest.Options{}); err == nil {
		t.Error("a cluster of 0 members started")
	}
	_, err := etcdtest.New(etcdtest.Options{Configure: func(cfg *embed.Config) { cfg.TickMs = 0 }})
	if err == nil {
		t.Error("a server with a wrong configuration started")
	}
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := etcdtest.New(etcdtest.Options{Dir: file}); err == nil {
		t.Error("a server started in a file")
	}
	goleak.VerifyNone(t, others)
}

// This runs the noisiest tests in a process of their own and checks its output.
func TestNothingIsPrinted(t *testing.T) {
	if os.Getenv("ETCDTEST_QUIET") != "" {
		t.Fatal("recursion")
	}
	const noisy = "TestStopBreaks|TestStopDoes|TestCloseWhile|TestClusterElects|TestCut|TestBlackHoleHides"
	cmd := exec.CommandContext(withTimeout(t), os.Args[0], "-test.run="+noisy)
	cmd.Env = append(os.Environ(), "ETCDTEST_QUIET=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !regexp.MustCompile(`^PASS\n(coverage: .*\n)?$`).Match(out) {
		t.Errorf("printed:\n%s", out)
	}
}

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		srv, err := etcdtest.New(etcdtest.Options{})
		if err != nil {
			b.Fatal(err)
		}
		srv.Close()
	}
}

func BenchmarkStartCluster(b *testing.B) {
	for b.Loop() {
		c, err := etcdtest.NewCluster(3, etcdtest.Options{})
		if err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}
