package robustness

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

// Scenario 38: if the client cannot connect, New and NewClient return when their context ends, and the error has the
// reason. gRPC would return DeadlineExceeded to a call that waits for a connection. The rows are those of
// docs/client.md.
func TestNewReportsWhyItCannotConnect(t *testing.T) {
	t.Parallel()
	serverCA, otherCA := newAuthority(t), newAuthority(t)
	secure := etcdtest.Start(t, serverCA.options(t, serverCA.issue(t), false))
	strict := etcdtest.Start(t, serverCA.options(t, serverCA.issue(t), true))
	elsewhere := etcdtest.Start(t, serverCA.options(t, serverCA.issueTo(t, "etcd.example"), false))
	expired := etcdtest.Start(t, serverCA.options(t, serverCA.issueUntil(t, "", time.Now().Add(-time.Minute)), false))
	byName := "localhost" + elsewhere.Endpoints()[0][strings.LastIndexByte(elsewhere.Endpoints()[0], ':'):]
	plain := etcdtest.Start(t)
	stopped := etcdtest.Start(t)
	stopped.Stop()
	trusting := &tls.Config{RootCAs: serverCA.pool}
	// With TLS 1.3 the client completes its handshake before the server verifies the
	// client's certificate. It may see a closed connection before it reads the alert.
	refused := []string{"tls: certificate required", "tls: bad certificate", "tls: unknown certificate", "broken pipe",
		"connection reset"}
	cases := map[string]struct {
		endpoints []string
		tls       *tls.Config
		want      []string // the error contains one of them
	}{
		"a CA that is not the server's": {
			secure.Endpoints(), &tls.Config{RootCAs: otherCA.pool}, []string{"certificate signed by unknown authority"},
		},
		"a certificate for another host": {elsewhere.Endpoints(), trusting, []string{"doesn't contain any IP SANs"}},
		"a certificate for another name": {
			[]string{byName}, trusting, []string{"certificate is valid for etcd.example, not localhost"},
		},
		"an expired certificate": {
			expired.Endpoints(), trusting, []string{"certificate has expired or is not yet valid"},
		},
		"no certificate where one is required": {strict.Endpoints(), trusting, refused},
		"a certificate of another CA": {
			strict.Endpoints(), &tls.Config{RootCAs: serverCA.pool, Certificates: []tls.Certificate{otherCA.issue(t)}}, refused,
		},
		"TLS to a server without TLS": {
			plain.Endpoints(), trusting, []string{"first record does not look like a TLS handshake", "handshake failed: EOF"},
		},
		"no TLS to a server with TLS": {secure.Endpoints(), nil, []string{"error reading server preface"}},
		"no listener":                 {stopped.Endpoints(), nil, []string{"connection refused"}},
		"no listener, with TLS":       {stopped.Endpoints(), trusting, []string{"connection refused"}},
		// Go refuses this name without asking a name server.
		"a name that does not resolve": {[]string{"etcd..invalid:2379"}, nil, []string{"no such host"}},
	}
	// Those of TestNewClientReportsThatItIsStillConnecting and TestSecretsStayOutOfLogsAndErrors.
	tested := []string{stillConnecting, rpctypes.ErrAuthFailed.Error()}
	for _, c := range cases {
		tested = append(tested, c.want...)
	}
	for _, said := range documentedReasons(t) {
		if !slices.ContainsFunc(tested, func(text string) bool { return strings.Contains(text, said) }) {
			t.Errorf("docs/client.md lists %q, which no test sees", said)
		}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := session.ClientConfig(c.endpoints...)
			cfg.TLS = c.tls
			cli := dial(t, cfg)
			cli.ActiveConnection().Connect()
			awaitFailure(deadline(t), cli.ActiveConnection())
			_, err := session.New(soon(t, 100*time.Millisecond), cli, session.Options{})
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, etcderr.ErrNotConnected) ||
				!slices.ContainsFunc(c.want, func(want string) bool { return strings.Contains(err.Error(), want) }) {
				t.Errorf("New: %v\nwant ErrNotConnected, with one of %q", err, c.want)
			}

			cfg.Username, cfg.Password = "service", password
			ctx := cancelOnFailure(deadline(t), &cfg)
			_, err = session.NewClient(ctx, cfg)
			if !errors.Is(err, context.Canceled) || !errors.Is(err, etcderr.ErrNotConnected) ||
				!slices.ContainsFunc(c.want, func(want string) bool { return strings.Contains(err.Error(), want) }) {
				t.Errorf("NewClient: %v\nwant ErrNotConnected, with one of %q", err, c.want)
			}
			if !strings.Contains(err.Error(), strconv.Quote(c.endpoints[0])) ||
				!strings.Contains(err.Error(), `user "service"`) ||
				strings.Contains(err.Error(), password) {
				t.Errorf("NewClient: %v\nwant the endpoint and the user, without the password", err)
			}
		})
	}
}

const stillConnecting = "still connecting"

// documentedReasons returns the texts in the first column of the table in docs/client.md, without what varies in them.
func documentedReasons(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/client.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| the text says |")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, row := range strings.Split(table, "\n| ")[1:] {
		cell, _, _ := strings.Cut(row, " | ")
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
			for piece := range strings.SplitSeq(m[1], "…") {
				if piece != "" {
					all = append(all, piece)
				}
			}
		}
	}
	if len(all) < 13 {
		t.Fatalf("the table of docs/client.md: %q", all)
	}
	return all
}

// The last row of docs/client.md: packets are dropped, so no attempt fails before its time is over.
func TestNewClientReportsThatItIsStillConnecting(t *testing.T) {
	t.Parallel()
	link := etcdtest.Start(t).Link(t)
	link.BlackHole()
	cfg := session.ClientConfig(link.Endpoints()...)
	cfg.Username, cfg.Password = "service", password
	cfg.DialTimeout = 100 * time.Millisecond
	_, err := session.NewClient(deadline(t), cfg)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, etcderr.ErrNotConnected) ||
		!strings.Contains(err.Error(), stillConnecting) {
		t.Errorf("%v", err)
	}
}

// cancelOnFailure returns a context that is canceled when a client made with cfg has failed to connect for a request.
func cancelOnFailure(parent context.Context, cfg *clientv3.Config) context.Context {
	ctx, cancel := context.WithCancel(parent)
	cfg.DialOptions = append(cfg.DialOptions, grpc.WithChainUnaryInterceptor(
		func(
			ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
			opts ...grpc.CallOption,
		) error {
			go func() { // ends with parent at the latest
				awaitFailure(parent, cc)
				cancel()
			}()
			return invoke(ctx, method, req, reply, cc, opts...)
		}))
	return ctx
}

// The control of the test above: with the right certificates the same settings work.
func TestSessionOverTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	srv := etcdtest.Start(t, ca.options(t, ca.issue(t), true))
	cli := connect(t, srv, &tls.Config{RootCAs: ca.pool, Certificates: []tls.Certificate{ca.issue(t)}})
	sess := open(t, cli, session.Options{})
	if err := locker.NewMutex(sess, "x").Do(deadline(t),
		func(context.Context, *locker.Lock) error { return nil }); err != nil {
		t.Error(err)
	}
}

// The errors of a Lock and of a loss during an outage have the reason, too.
func TestLockAndLossErrorsReportTheConnectionError(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := connect(t, srv, nil)
	sess := open(t, cli, session.Options{TTL: 2 * time.Second, CloseTimeout: 100 * time.Millisecond})
	held, err := locker.NewMutex(sess, "held").Lock(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	srv.Stop()
	awaitFailure(deadline(t), cli.ActiveConnection())
	_, err = locker.NewMutex(sess, "x").Lock(soon(t, 100*time.Millisecond))
	var failed *view.AcquireError
	if !errors.As(err, &failed) || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, etcderr.ErrNotConnected) ||
		!strings.Contains(err.Error(), "connection refused") {
		t.Errorf("Lock: %v", err)
	}
	<-held.Done()
	var lost *holdfast.LostError
	if err := held.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseExpired ||
		!errors.Is(err, etcderr.ErrNotConnected) ||
		!strings.Contains(err.Error(), "connection refused") {
		t.Errorf("Check: %v", err)
	}
}

// connect returns a client with the settings that the documentation recommends.
func connect(t *testing.T, srv *etcdtest.Server, tlsConfig *tls.Config) *clientv3.Client {
	t.Helper()
	cfg := session.ClientConfig(srv.Endpoints()...)
	cfg.TLS = tlsConfig
	return dial(t, cfg)
}

// dial returns a client, which the end of the test closes.
func dial(t *testing.T, cfg clientv3.Config) *clientv3.Client {
	t.Helper()
	cli, err := session.NewClient(deadline(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// awaitFailure waits until an attempt to connect has failed, or until ctx ends.
func awaitFailure(ctx context.Context, conn *grpc.ClientConn) {
	failed := func(s connectivity.State) bool {
		return s == connectivity.TransientFailure || s == connectivity.Shutdown
	}
	for state := conn.GetState(); !failed(state); state = conn.GetState() {
		if !conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}
