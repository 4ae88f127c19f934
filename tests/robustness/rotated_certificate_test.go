package robustness

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// validity is how long the first certificate of a client is valid.
const validity = 5 * time.Second

// readAtEachConnection is the documented setting for certificates that are replaced on disk while the program runs.
func readAtEachConnection(dir string, roots *x509.CertPool) *tls.Config {
	return &tls.Config{
		RootCAs: roots,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
			return &cert, err
		},
	}
}

// secureClient returns a client with the documented settings that goes through a link.
func secureClient(t *testing.T, link *etcdtest.Link, config *tls.Config) *clientv3.Client {
	t.Helper()
	cfg := session.ClientConfig(link.Endpoints()...)
	cfg.TLS = config
	return connectWith(t, cfg)
}

// mustHoldAndWrite checks that a lock is held as it was acquired, and that etcd accepts its fenced writes.
func mustHoldAndWrite(t *testing.T, when string, lk *locker.Lock, sess *session.Session, kept string) {
	t.Helper()
	awaitRenewal(t, sess)
	mustHold(t, when, lk, sess, kept)
	if _, err := fencing.NewFencedWriter(lk).Put(deadline(t), "data", when); err != nil {
		t.Errorf("%s: fenced write: %v", when, err)
	}
}

// The certificate of a client expires and is replaced on disk. TLS looks at certificates only when a connection is
// made: so nothing happens until the connection breaks, and the next one needs the new certificate.
func TestLockOutlivesTheCertificateOfItsClient(t *testing.T) {
	t.Parallel()
	for what, reconnect := range map[string]func(t *testing.T, srv *etcdtest.Server, link *etcdtest.Link){
		"the connection is reset": func(_ *testing.T, _ *etcdtest.Server, link *etcdtest.Link) {
			link.Cut()
			link.Heal()
		},
		"etcd restarts": func(t *testing.T, srv *etcdtest.Server, _ *etcdtest.Link) {
			srv.Stop()
			restart(t, srv)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ca, dir := newAuthority(t), t.TempDir()
			srv := etcdtest.Start(t, ca.options(t, ca.issue(t), true))
			link := srv.Link(t)
			expires := time.Now().Add(validity)
			writeCertificate(t, dir, ca.issueUntil(t, "", expires))
			cli := secureClient(t, link, readAtEachConnection(dir, ca.pool))
			sess := open(t, cli, session.Options{TTL: 15 * time.Second})
			lk := lock(t, sess, "x")
			kept := identity(lk)

			await(t, "the certificate has expired", func() bool { return time.Now().After(expires) })
			mustHoldAndWrite(t, "on the connection that was made with it", lk, sess, kept)
			writeCertificate(t, dir, ca.issue(t))
			reconnect(t, srv, link)
			mustHoldAndWrite(t, "with a new certificate", lk, sess, kept)
			unlock(t, lk)
		})
	}
}

// A client that presents one certificate for ever loses its session at the first broken connection after the expiry.
func TestSessionIsLostWithoutAValidCertificate(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	srv := etcdtest.Start(t, ca.options(t, ca.issue(t), true))
	link := srv.Link(t)
	expires := time.Now().Add(validity)
	config := &tls.Config{RootCAs: ca.pool, Certificates: []tls.Certificate{ca.issueUntil(t, "", expires)}}
	sess := open(t, secureClient(t, link, config), session.Options{TTL: 3 * time.Second})
	lk := lock(t, sess, "x")
	await(t, "the certificate has expired", func() bool { return time.Now().After(expires) })
	awaitRenewal(t, sess)
	if err := lk.Check(); err != nil {
		t.Errorf("on the connection that was made with it: %v", err)
	}
	link.Cut()
	link.Heal()
	<-lk.Done()
	var lost *holdfast.LostError
	if err := lk.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseExpired {
		t.Fatalf("Check: %v", err)
	}
	// As in TestSessionThatCannotConnectSaysWhy the client may find the connection closed before it reads the reason.
	reasons := []string{"expired certificate", "bad certificate", "broken pipe", "connection reset"}
	if !slices.ContainsFunc(reasons, func(r string) bool { return strings.Contains(lost.Error(), r) }) {
		t.Errorf("the loss does not say why: %v", lost)
	}
}

// The servers' certificates move to a new CA, while clients trust both CAs. Etcd reads its certificate at each
// connection.
func TestLockOutlivesANewCAOfTheServers(t *testing.T) {
	t.Parallel()
	before, after, dir := newAuthority(t), newAuthority(t), t.TempDir()
	srv := etcdtest.Start(t, before.optionsIn(t, dir, before.issue(t), false))
	link := srv.Link(t)
	both := before.pool.Clone()
	both.AddCert(after.cert)
	config := &tls.Config{RootCAs: both}
	verified := make(chan *x509.Certificate, 100) // the CA, for each connection
	config.VerifyConnection = func(state tls.ConnectionState) error {
		verified <- state.VerifiedChains[0][1]
		return nil
	}
	sess := open(t, secureClient(t, link, config), session.Options{TTL: 15 * time.Second})
	lk := lock(t, sess, "x")
	kept := identity(lk)
	writeCertificate(t, dir, after.issue(t))
	link.Cut()
	link.Heal()
	mustHoldAndWrite(t, "with a certificate of the new CA", lk, sess, kept)
	first, last := <-verified, (*x509.Certificate)(nil)
	for len(verified) > 0 {
		last = <-verified
	}
	if !first.Equal(before.cert) || !last.Equal(after.cert) {
		t.Error("this test has gone blind: the second connection was not verified by the new CA")
	}
}
