package session

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
)

func TestProblemWithACertificateSaysWhichAndWhen(t *testing.T) {
	noon := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	shown := newCertificate(t, "billing-1", noon)
	for name, c := range map[string]struct {
		shown *tls.Certificate
		some  int
		now   time.Time
		want  string // "": nothing
	}{
		"expired":     {shown, 1, noon.Add(time.Second), `"CN=billing-1" (serial 2a) expired at 2026-01-31T12:00:00Z`},
		"too new":     {shown, 1, noon.Add(-2 * time.Hour), `is not valid before 2026-01-31T11:00:00Z`},
		"valid":       {shown, 1, noon.Add(-time.Minute), ""},
		"none":        {&tls.Certificate{}, 0, noon, "Config.TLS has none"},
		"another CA":  {&tls.Certificate{}, 1, noon, "accepts the CA of none"},
		"load failed": {nil, 0, noon, ""},
	} {
		got := problemWith(c.shown, c.some, c.now)
		if (got == nil) != (c.want == "") || got != nil && !strings.Contains(*got, c.want) {
			t.Errorf("%s: %v, want %q", name, got, c.want)
		}
	}
}

// newCertificate returns a certificate that signs itself, which is valid for an hour before the given time.
func newCertificate(t *testing.T, name string, until time.Time) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(0x2a), Subject: pkix.Name{CommonName: name},
		NotBefore: until.Add(-time.Hour), NotAfter: until,
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// A client chooses among its certificates as without NewClient, and what is wrong with the one it shows is noted.
func TestCertificateIsChosenAsByCryptoTLS(t *testing.T) {
	yesterday := time.Now().Add(-24 * time.Hour)
	a, b, own := newCertificate(t, "a", yesterday), newCertificate(t, "b", yesterday), newCertificate(t, "own", yesterday)
	asking := func(cas ...*tls.Certificate) *tls.CertificateRequestInfo {
		asked := &tls.CertificateRequestInfo{
			Version: tls.VersionTLS13, SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256},
		}
		for _, ca := range cas {
			leaf, err := x509.ParseCertificate(ca.Certificate[0])
			if err != nil {
				t.Fatal(err)
			}
			asked.AcceptableCAs = append(asked.AcceptableCAs, leaf.RawSubject)
		}
		return asked
	}
	two := &tls.Config{Certificates: []tls.Certificate{*a, *b}}
	callback := &tls.Config{GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return own, nil
	}}
	for name, c := range map[string]struct {
		cfg   *tls.Config
		asked *tls.CertificateRequestInfo
		want  *tls.Certificate // nil: none
		says  string
	}{
		"the first":         {two, asking(a, b), a, `"CN=a"`},
		"the second":        {two, asking(b), b, `"CN=b"`},
		"none that fits":    {two, asking(own), nil, "accepts the CA of none"},
		"none at all":       {&tls.Config{}, asking(a), nil, "Config.TLS has none"},
		"user's own choice": {callback, asking(a), own, `"CN=own"`},
	} {
		var noted certificate
		shown, err := noted.watch(c.cfg).GetClientCertificate(c.asked)
		var got, want [][]byte
		if c.want != nil {
			want = c.want.Certificate
		}
		if shown != nil {
			got = shown.Certificate
		}
		if err != nil || !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%s: chose %x, %v", name, got, err)
		}
		if problem := noted.problem.Load(); problem == nil || !strings.Contains(*problem, c.says) {
			t.Errorf("%s: noted %v, want %q", name, problem, c.says)
		}
	}
}

// Only the error that says why there is no connection says what is wrong with the certificate.
func TestProblemWithACertificateIsAddedToTheReasonAlone(t *testing.T) {
	down, err := grpc.NewClient("passthrough:///down", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Hour, MaxDelay: time.Hour}}),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, net.ErrClosed }))
	if err != nil {
		t.Fatal(err)
	}
	defer down.Close()
	for down.Connect(); down.GetState() != connectivity.TransientFailure; {
		down.WaitForStateChange(t.Context(), down.GetState())
	}
	idle, err := grpc.NewClient("passthrough:///idle", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	unavailable, timeout := status.Error(codes.Unavailable, "broken pipe"), status.Error(codes.DeadlineExceeded, "late")
	for name, c := range map[string]struct {
		cc     *grpc.ClientConn
		method string
		err    error
		added  bool
	}{
		"the reason":      {down, retry.MaintenanceStatus, unavailable, true},
		"another request": {down, authenticate, unavailable, false},
		"another error":   {down, retry.MaintenanceStatus, timeout, false},
		"connecting":      {idle, retry.MaintenanceStatus, unavailable, false},
		"success":         {down, retry.MaintenanceStatus, nil, false},
	} {
		const problem = "the client certificate has expired"
		noted, text := certificate{}, problem
		noted.problem.Store(&text)
		got := noted.intercept(t.Context(), c.method, nil, nil, c.cc,
			func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return c.err })
		if !c.added && got != c.err || c.added && status.Convert(got).Message() != "broken pipe; "+problem {
			t.Errorf("%s: %v", name, got)
		}
		if kept := noted.problem.Load() != nil; kept != (c.err != nil) {
			t.Errorf("%s: the problem is kept: %v", name, kept)
		}
	}
}

// The server closes the connection without a reason that reaches the client.
func TestNewClientSaysWhichCertificateHasExpired(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		listener := bufconn.Listen(1 << 16)
		server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
			Certificates: []tls.Certificate{*newCertificate(t, "etcd", time.Now().Add(time.Minute))},
			ClientAuth:   tls.RequireAndVerifyClientCert,
			ClientCAs:    x509.NewCertPool(),
		})))
		served := make(chan struct{})
		go func() { // joined below
			defer close(served)
			_ = server.Serve(listener)
		}()
		defer func() { server.Stop(); <-served }()
		cfg := ClientConfig("passthrough:///fake")
		cfg.Username, cfg.Password = "service", "swordfish"
		cfg.TLS = &tls.Config{
			InsecureSkipVerify: true, // the server's certificate signs itself
			Certificates:       []tls.Certificate{*newCertificate(t, "billing-1", time.Now().Add(-time.Minute))},
		}
		cfg.DialOptions = append(cfg.DialOptions,
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
		_, err := NewClient(t.Context(), cfg)
		const want = `the client certificate "CN=billing-1" (serial 2a) expired at `
		if !errors.Is(err, etcderr.ErrNotConnected) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v", err)
		}
	})
}
