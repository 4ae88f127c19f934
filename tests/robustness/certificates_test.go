package robustness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/holdfast-go/holdfast/etcdtest"
)

// authority is a CA that a test creates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA of a test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &authority{cert, key, pool}
}

// issue issues a certificate for 127.0.0.1, valid for servers and clients.
func (a *authority) issue(t *testing.T) tls.Certificate { return a.issueTo(t, "") }

// issueTo issues a certificate for host, or for 127.0.0.1 if host is "".
func (a *authority) issueTo(t *testing.T, host string) tls.Certificate {
	t.Helper()
	return a.issueUntil(t, host, time.Now().Add(time.Hour))
}

// issueUntil issues a certificate as issueTo does, valid until expires.
func (a *authority) issueUntil(t *testing.T, host string, expires time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: expires,
		DNSNames: []string{host}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if host == "" {
		template.DNSNames, template.IPAddresses = nil, []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// options returns options of a member that serves clients over TLS with cert. If
// strict, it requires client certificates.
func (a *authority) options(t *testing.T, cert tls.Certificate, strict bool) etcdtest.Options {
	t.Helper()
	return a.optionsIn(t, t.TempDir(), cert, strict)
}

// optionsIn is options with the server's certificate in dir, where writeCertificate
// can replace it.
func (a *authority) optionsIn(t *testing.T, dir string, cert tls.Certificate, strict bool) etcdtest.Options {
	t.Helper()
	info := transport.TLSInfo{}
	info.CertFile, info.KeyFile = writeCertificate(t, dir, cert)
	if strict {
		info.ClientCertAuth, info.TrustedCAFile = true, filepath.Join(dir, "ca.pem")
		writePEM(t, info.TrustedCAFile, "CERTIFICATE", a.cert.Raw)
	}
	return etcdtest.Options{Configure: func(c *embed.Config) {
		c.ClientTLSInfo = info
		https := []url.URL{{Scheme: "https", Host: c.ListenClientUrls[0].Host}}
		c.ListenClientUrls, c.AdvertiseClientUrls = https, https
	}}
}

// writeCertificate writes a certificate and its key to cert.pem and key.pem in dir.
func writeCertificate(t *testing.T, dir string, cert tls.Certificate) (certFile, keyFile string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePEM(t, certFile, "CERTIFICATE", cert.Certificate[0])
	writePEM(t, keyFile, "PRIVATE KEY", der)
	return certFile, keyFile
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
