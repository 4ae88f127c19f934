package session_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/session"
)

// lines collects what a logger writes.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(bytes.Clone(line))
	return len(line), nil
}

// While etcd grants no lease, New says so after a second and each minute, and what each endpoint says.
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

func TestWaitingNewSaysWhatEachEndpointSays(t *testing.T) {
	t.Parallel()
	secure := httptest.NewUnstartedServer(nil)
	secure.EnableHTTP2, secure.Config.ErrorLog = true, log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	plain := httptest.NewServer(nil)
	t.Cleanup(plain.Close)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and answers nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	address := func(server *httptest.Server) string { return server.Listener.Addr().String() }
	// All at once: each waits for seconds of real time. t.Parallel would have two at a time on two processors.
	var all sync.WaitGroup
	defer all.Wait()
	for name, c := range map[string]struct {
		endpoint, says string
		tls            *tls.Config
	}{
		"no listener":              {"http://root:hunter2@127.0.0.1:1", "connection refused", nil},
		"no scheme, and a user":    {"root:hunter2@127.0.0.1:1", "127.0.0.1:1", nil},
		"TLS, and cfg has none":    {address(secure), "error reading server preface", nil},
		"no TLS, and cfg has some": {address(plain), "first record does not look like a TLS handshake", new(tls.Config)},
		"https, and no TLS there":  {"https://" + address(plain), "first record does not look like a TLS handshake", nil},
		"http, and TLS there":      {"http://" + address(secure), "error reading server preface", nil},
		"an untrusted certificate": {address(secure), "certificate signed by unknown authority", new(tls.Config)},
		"silence":                  {silent.Addr().String(), "still connecting", nil},
	} {
		all.Go(func() {
			cfg := session.ClientConfig(c.endpoint, "127.0.0.1:2")
			cfg.TLS = c.tls
			cli, err := session.NewClient(t.Context(), cfg)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			defer cli.Close()
			ctx, cancel := context.WithCancel(t.Context())
			told, done := make(lines, 10), make(chan struct{})
			go func() { // joined below
				defer close(done)
				_, _ = session.New(ctx, cli, session.Options{Logger: slog.New(slog.NewTextHandler(told, nil))})
			}()
			line := <-told
			cancel()
			<-done
			if !strings.Contains(line, c.says) || !strings.Contains(line, "127.0.0.1:2") || strings.Contains(line, "hunter2") {
				t.Errorf("%s: want %q: %s", name, c.says, line)
			}
		})
	}
}
