package page

import (
	"crypto/tls"
	"crypto/x509"
)

var (
	tlsConfig      *tls.Config
	roots          *x509.CertPool
	user, password string
	current        func() string
)
