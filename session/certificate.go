package session

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// certificate says what is wrong with the certificate that a client has shown to servers. They do not: one that refuses
// a certificate closes the connection, so that the client's error is as a rule "broken pipe". And of several members
// gRPC tells the error of one, which may be another that is down.
type certificate struct {
	problem atomic.Pointer[string] // of the latest that a server has asked for; nil: none is known
}

// watch returns a copy of a TLS configuration that notes what is shown.
func (c *certificate) watch(cfg *tls.Config) *tls.Config {
	cfg = cfg.Clone()
	choose := cfg.GetClientCertificate
	if choose == nil {
		choose = func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) { // as crypto/tls does
			for i := range cfg.Certificates {
				if asked.SupportsCertificate(&cfg.Certificates[i]) == nil {
					return &cfg.Certificates[i], nil
				}
			}
			return &tls.Certificate{}, nil
		}
	}
	cfg.GetClientCertificate = func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		shown, err := choose(asked)
		c.problem.Store(problemWith(shown, len(cfg.Certificates), time.Now()))
		return shown, err
	}
	return cfg
}

// problemWith returns what is wrong with a certificate that is shown, or nil. The client has some to choose from.
func problemWith(shown *tls.Certificate, some int, now time.Time) *string {
	text := ""
	switch {
	case shown == nil:
		return nil // the handshake fails with the reason
	case len(shown.Certificate) == 0 && some > 0:
		text = "a server has asked for a client certificate, and accepts the CA of none in Config.TLS"
	case len(shown.Certificate) == 0:
		text = "a server has asked for a client certificate, and Config.TLS has none"
	default:
		leaf, err := x509.ParseCertificate(shown.Certificate[0])
		switch {
		case err != nil:
			return nil
		case now.After(leaf.NotAfter):
			text = fmt.Sprintf("%s expired at %s", certificateName(leaf), leaf.NotAfter.UTC().Format(time.RFC3339))
		case now.Before(leaf.NotBefore):
			text = fmt.Sprintf("%s is not valid before %s", certificateName(leaf), leaf.NotBefore.UTC().Format(time.RFC3339))
		default:
			return nil
		}
	}
	return &text
}

func certificateName(leaf *x509.Certificate) string {
	return fmt.Sprintf("the client certificate %s (serial %x)", names.Quote(leaf.Subject.String()), leaf.SerialNumber)
}

// intercept adds the problem to the reason why there is no connection, for which retry.WithConnection asks. A request
// that succeeds shows that the certificate is good enough.
func (c *certificate) intercept(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	problem := c.problem.Load()
	switch {
	case problem == nil:
	case err == nil:
		c.problem.Store(nil)
	case method == retry.MaintenanceStatus && status.Code(err) == codes.Unavailable &&
		cc.GetState() == connectivity.TransientFailure:
		return status.Errorf(codes.Unavailable, "%s; %s", status.Convert(err).Message(), *problem)
	}
	return err
}
