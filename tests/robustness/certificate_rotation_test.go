package robustness

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// validity is the lifetime of the first client certificate of a test.
const validity = 5 * time.Second

// readAtEachConnection returns the documented TLS settings for a client certificate that is replaced on disk while the
// program runs.
func readAtEachConnection(dir string, roots *x509.CertPool) *tls.Config {
	return &tls.Config{
		RootCAs: roots,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
			return &cert, err
		},
	}
}

// secureClient returns a client with the documented settings that connects through a link.
func secureClient(t *testing.T, link *etcdtest.Link, config *tls.Config) *clientv3.Client {
	t.Helper()
	cfg := session.ClientConfig(link.Endpoints()...)
	cfg.TLS = config
	return connectWith(t, cfg)
}

// mustHoldAndWrite is mustHold after a renewal, and checks that etcd accepts a fenced write.
func mustHoldAndWrite(t *testing.T, when string, lk *locker.Lock, sess *session.Session, want string) {
	t.Helper()
	awaitRenewal(t, sess)
	mustHold(t, when, lk, sess, want)
	if _, err := etcdfence.NewWriter(lk).Put(deadline(t), "data", when); err != nil {
		t.Errorf("%s: fenced write: %v", when, err)
	}
}

// The certificate of a client expires and is replaced on disk. TLS verifies certificates only in the handshake: the
// connection survives the expiry, and the next connection needs the new certificate.
func TestLockSurvivesRotationOfTheClientCertificate(t *testing.T) {
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
			mustHoldAndWrite(t, "on the connection from before the expiry", lk, sess, kept)
			writeCertificate(t, dir, ca.issue(t))
			reconnect(t, srv, link)
			mustHoldAndWrite(t, "with the new certificate", lk, sess, kept)
			unlock(t, lk)
		})
	}
}

// A client that does not reload its certificate loses its session at the first broken connection after the expiry.
func TestSessionIsLostWhenItsClientCertificateIsNotReplaced(t *testing.T) {
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
		t.Errorf("Check on the connection from before the expiry: %v", err)
	}
	link.Cut()
	link.Heal()
	<-lk.Done()
	var lost *holdfast.LostError
	if err := lk.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseExpired {
		t.Fatalf("Check: %v", err)
	}
	// As in TestNewReportsWhyItCannotConnect, the client may see a closed connection before it reads the alert.
	reasons := []string{"expired certificate", "bad certificate", "broken pipe", "connection reset"}
	if !slices.ContainsFunc(reasons, func(r string) bool { return strings.Contains(lost.Error(), r) }) {
		t.Errorf("the loss lacks the reason: %v", lost)
	}
}

// The server's certificate is replaced by one of a new CA, while the client trusts both CAs. etcd reads its certificate
// at each connection.
func TestLockSurvivesChangeOfTheServerCA(t *testing.T) {
	t.Parallel()
	before, after, dir := newAuthority(t), newAuthority(t), t.TempDir()
	srv := etcdtest.Start(t, before.optionsIn(t, dir, before.issue(t), false))
	link := srv.Link(t)
	both := before.pool.Clone()
	both.AddCert(after.cert)
	config := &tls.Config{RootCAs: both}
	verified := make(chan *x509.Certificate, 100) // the CA of each connection
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
		t.Error("the test proves nothing: the connections did not use first the old and then the new CA")
	}
}

// Under load the certificates of the server and of its clients are replaced again and again, and all connections are
// reset each time. No lock is lost, and no two processes hold at once.
func TestLocksUnderLoadSurviveRotationsOfAllCertificates(t *testing.T) {
	t.Parallel()
	const sessions, rotations = 3, 5
	ca, served, used := newAuthority(t), t.TempDir(), t.TempDir()
	srv := etcdtest.Start(t, ca.optionsIn(t, served, ca.issue(t), true))
	writeCertificate(t, used, ca.issue(t))
	var inside, stopped atomic.Int32
	var held [sessions]atomic.Int32
	var links [sessions]*etcdtest.Link
	var workers sync.WaitGroup
	defer workers.Wait()
	defer stopped.Store(1)
	for i := range sessions {
		links[i] = srv.Link(t)
		cli := secureClient(t, links[i], readAtEachConnection(used, ca.pool))
		sess := open(t, cli, session.Options{TTL: 15 * time.Second})
		workers.Go(func() {
			for stopped.Load() == 0 {
				err := locker.NewMutex(sess, "x").Do(deadline(t), func(context.Context, *locker.Lock) error {
					if inside.Add(1) != 1 {
						t.Error("two hold")
					}
					held[i].Add(1)
					inside.Add(-1)
					return nil
				})
				if err != nil {
					t.Errorf("session %d: %v", i, err)
					return
				}
			}
		})
	}
	for range rotations {
		writeCertificate(t, served, ca.issue(t))
		writeCertificate(t, used, ca.issue(t))
		for i, link := range links {
			link.Cut()
			link.Heal()
			before := held[i].Load()
			await(t, "the session holds again", func() bool { return held[i].Load() > before+1 || t.Failed() })
		}
	}
}
