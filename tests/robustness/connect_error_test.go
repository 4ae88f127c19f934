package robustness

import (
	"context"
	"crypto/tls"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// Scenario 38: if the client cannot connect, New returns when its context ends,
// and its error has the reason. gRPC would return DeadlineExceeded to a
// call that waits for a connection.
func TestNewReportsWhyItCannotConnect(t *testing.T) {
	t.Parallel()
	serverCA, otherCA := newAuthority(t), newAuthority(t)
	secure := etcdtest.Start(t, serverCA.options(t, serverCA.issue(t), false))
	strict := etcdtest.Start(t, serverCA.options(t, serverCA.issue(t), true))
	elsewhere := etcdtest.Start(t, serverCA.options(t, serverCA.issueTo(t, "etcd.example"), false))
	plain := etcdtest.Start(t)
	stopped := etcdtest.Start(t)
	stopped.Stop()
	// With TLS 1.3 the client completes its handshake before the server verifies the
	// client's certificate. It may see a closed connection before it reads the alert.
	refused := []string{"tls: certificate required", "tls: bad certificate", "tls: unknown certificate", "broken pipe",
		"connection reset"}
	for name, c := range map[string]struct {
		srv  *etcdtest.Server
		tls  *tls.Config
		want []string // the error contains one of them
	}{
		"a CA that is not the server's": {secure, &tls.Config{RootCAs: otherCA.pool},
			[]string{"certificate signed by unknown authority"}},
		"a certificate for another host": {elsewhere, &tls.Config{RootCAs: serverCA.pool},
			[]string{"doesn't contain any IP SANs"}},
		"no certificate where one is required": {strict, &tls.Config{RootCAs: serverCA.pool}, refused},
		"a certificate of another CA": {strict,
			&tls.Config{RootCAs: serverCA.pool, Certificates: []tls.Certificate{otherCA.issue(t)}}, refused},
		"TLS to a server without TLS": {plain, &tls.Config{RootCAs: serverCA.pool},
			[]string{"authentication handshake failed"}},
		"no TLS to a server with TLS": {secure, nil, []string{"server preface"}},
		"no listener":                 {stopped, nil, []string{"connection refused"}},
		"no listener, with TLS": {stopped, &tls.Config{RootCAs: serverCA.pool},
			[]string{"connection refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cli := connect(t, c.srv, c.tls)
			cli.ActiveConnection().Connect()
			awaitFailure(t, cli)
			_, err := session.New(soon(t, 100*time.Millisecond), cli, nil)
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, etcderr.ErrNotConnected) ||
				!slices.ContainsFunc(c.want, func(want string) bool { return strings.Contains(err.Error(), want) }) {
				t.Errorf("error %v\nwant ErrNotConnected, with one of %q", err, c.want)
			}
		})
	}
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
	awaitFailure(t, cli)
	_, err = locker.NewMutex(sess, "x").Lock(soon(t, 100*time.Millisecond))
	var failed *locker.AcquireError
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
	cli, err := clientv3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// awaitFailure waits until an attempt of the client to connect has failed.
func awaitFailure(t *testing.T, cli *clientv3.Client) {
	t.Helper()
	conn, ctx := cli.ActiveConnection(), deadline(t)
	for state := conn.GetState(); state != connectivity.TransientFailure; state = conn.GetState() {
		if !conn.WaitForStateChange(ctx, state) {
			t.Fatalf("timed out; the connection is %v", state)
		}
	}
}
