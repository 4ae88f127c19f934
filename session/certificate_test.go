package session

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"strings"
	"testing"
	"time"
)

func TestProblemWithACertificateSaysWhichAndWhen(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	noon := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(0x2a), Subject: pkix.Name{CommonName: "billing-1"},
		NotBefore: noon.Add(-time.Hour), NotAfter: noon,
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	shown := &tls.Certificate{Certificate: [][]byte{der}}
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
