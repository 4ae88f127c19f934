//go:build linux

package cmd

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/holdfast-go/holdfast/etcdtest"
)

// with starts holdfast with these variables and without those of the test.
func with(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // without a terminal
	return begin(t, cmd, env...)
}

func TestExitCodesAndErrorsOfWrongUse(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	stopped := etcdtest.Start(t)
	stopped.Stop()
	at := "--endpoints=" + srv.Endpoints()[0]
	for name, c := range map[string]struct {
		env  []string
		args []string
		code int
		says string
	}{
		"no etcd": {nil, []string{"ls", "--command-timeout=2s", "--endpoints=" + stopped.Endpoints()[0]}, 69,
			"connection refused"},
		"no etcd, epoch": {nil, []string{"epoch", "--command-timeout=2s", "--endpoints=" + stopped.Endpoints()[0]}, 69,
			"connection refused"},
		"unknown flag":    {nil, []string{"ls", "--bogus"}, 64, "unknown flag: --bogus"},
		"unknown command": {nil, []string{"bogus"}, 64, `unknown command "bogus"`},
		"unknown topic":   {nil, []string{"help", "bogus"}, 64, `unknown command "bogus"`},
		"no time":         {nil, []string{"ls", "--command-timeout=0", at}, 64, "--command-timeout"},
		"no purpose":      {nil, []string{"check", "--for=", at}, 64, "--for"},
		"no one tree": {nil, []string{"check", "--for=lock,tree", "--name=x", at}, 64,
			`--for has "tree", which takes permissions for all names: check it without --name`},
		"no one inspected": {nil, []string{"check", "--for=inspect", "--name=x", at}, 64, "without --name"},
		"no one to kick":   {nil, []string{"check", "--for=admin", "--name=x", at}, 64, "without --name"},
		"negative token":   {nil, []string{"kick", "x", "--reason=r", "--token=-1", at}, 64, "--token"},
		"bad variable":     {[]string{"ETCDCTL_COMMAND_TIMEOUT=soon"}, []string{"ls", at}, 64, "ETCDCTL_COMMAND_TIMEOUT"},
		"bad name":         {nil, []string{"show", "a//b", at}, 64, "a//b"},
		"no name":          {nil, []string{"show", at}, 64, "one NAME"},
		"bad output":       {nil, []string{"ls", "-o", "yaml", at}, 64, "yaml"},
		"key without cert": {nil, []string{"ls", "--key=/none", at}, 64, "--cert"},
		"no terminal":      {nil, []string{"ls", "--user=root", at}, 64, "ETCDCTL_PASSWORD"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := with(t, c.env, c.args...)
			if p.exits(c.code); !strings.Contains(p.stderr.String(), c.says) || p.stdout.String() != "" {
				t.Errorf("stdout %q, stderr %q, want %q in stderr", p.stdout, p.stderr, c.says)
			}
		})
	}
}

func TestEndpointsComeFromTheFlagOrTheVariable(t *testing.T) {
	t.Parallel()
	one, two := etcdtest.Start(t), etcdtest.Start(t)
	hold(t, open(t, one.Client(t), ""), "in-one")
	hold(t, open(t, two.Client(t), ""), "in-two")
	env := []string{"ETCDCTL_ENDPOINTS=" + one.Endpoints()[0], "ETCDCTL_API=3"}
	if out := with(t, env, "ls").exits(0).stdout.String(); !strings.Contains(out, "in-one") {
		t.Errorf("the variable is ignored: %s", out)
	}
	out := with(t, env, "ls", "--endpoints", two.Endpoints()[0]).exits(0).stdout.String()
	if !strings.Contains(out, "in-two") {
		t.Errorf("the flag does not win: %s", out)
	}
	out = with(t, append(env, "HOLDFAST_NAMESPACE=elsewhere"), "ls").exits(0).stdout.String()
	if strings.Contains(out, "in-one") {
		t.Errorf("HOLDFAST_NAMESPACE is ignored: %s", out)
	}
}

func TestUserAndPassword(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	const password = "a:secret:of-root" // a colon is allowed in it
	srv.Occupy(t, entries)              // without a session, which would have no user
	enableAuth(t, srv.Client(t), password)
	at := "ETCDCTL_ENDPOINTS=" + srv.Endpoints()[0]
	for name, c := range map[string]struct {
		env  []string
		args []string
		code int
	}{
		"user with password":  {nil, []string{"--user=root:" + password}, 0},
		"user and password":   {nil, []string{"--user=root", "--password=" + password}, 0},
		"variables":           {[]string{"ETCDCTL_USER=root", "ETCDCTL_PASSWORD=" + password}, nil, 0},
		"one variable":        {[]string{"ETCDCTL_USER=root:" + password}, nil, 0},
		"wrong password":      {nil, []string{"--user=root:" + password + "x"}, 77},
		"no user":             {nil, nil, 77},
		"without permission":  {nil, []string{"--user=nothing:" + password}, 77},
		"password, no user":   {[]string{"ETCDCTL_PASSWORD=" + password}, nil, 64},
		"two passwords":       {[]string{"ETCDCTL_PASSWORD=x"}, []string{"--user=root:" + password}, 64},
		"broken flag besides": {nil, []string{"--user=root:" + password, "--command-timeout=x"}, 64},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := with(t, append(c.env, at), append([]string{"show", "x"}, c.args...)...).exits(c.code)
			if all := p.stdout.String() + p.stderr.String(); strings.Contains(all, "secret") {
				t.Errorf("it prints the password: %s", all)
			}
			if held := strings.Contains(p.stdout.String(), "held by"); held != (c.code == 0) {
				t.Errorf("stdout %q", p.stdout)
			}
		})
	}
	t.Run("asked for on the terminal", func(t *testing.T) {
		w := onTerminal(t, srv.Endpoints(), "show", "x", "--user=root")
		w.prints(w.stdout, `etcd password of "root": `)
		w.keys(password + "\r")
		w.exits(0)
		if out := w.stdout.String(); strings.Contains(out, "secret") || !strings.Contains(out, "held by") {
			t.Errorf("it prints %q", out)
		}
	})
}

// enableAuth makes a user root and a user "nothing" without roles, both with the password.
func enableAuth(t *testing.T, cli *clientv3.Client, password string) {
	t.Helper()
	ctx := deadline(t)
	for _, do := range []func() error{
		func() error { _, err := cli.UserAdd(ctx, "root", password); return err },
		func() error { _, err := cli.UserAdd(ctx, "nothing", password); return err },
		func() error { _, err := cli.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := cli.AuthEnable(ctx); return err },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
}

// addUser makes a user who may do what is given to some keys; those that end in "/" are prefixes.
func addUser(t *testing.T, cli *clientv3.Client, user, password string, may authpb.Permission_Type, keys ...string) {
	t.Helper()
	ctx := deadline(t)
	_, err1 := cli.RoleAdd(ctx, user)
	_, err2 := cli.UserAdd(ctx, user, password)
	_, err3 := cli.UserGrantRole(ctx, user, user)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	allow(t, cli, user, may, keys...)
}

func allow(t *testing.T, cli *clientv3.Client, role string, may authpb.Permission_Type, keys ...string) {
	t.Helper()
	for _, key := range keys {
		end := ""
		if strings.HasSuffix(key, "/") {
			end = clientv3.GetPrefixRangeEnd(key)
		}
		if _, err := cli.RoleGrantPermission(deadline(t), role, key, end, clientv3.PermissionType(may)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, cert, key := certificates(t, dir)
	srv := etcdtest.Start(t, etcdtest.Options{Configure: func(c *embed.Config) {
		c.ClientTLSInfo = transport.TLSInfo{CertFile: cert, KeyFile: key, TrustedCAFile: ca, ClientCertAuth: true}
		https := []url.URL{{Scheme: "https", Host: c.ListenClientUrls[0].Host}}
		c.ListenClientUrls, c.AdvertiseClientUrls = https, https
	}})
	at := "ETCDCTL_ENDPOINTS=https://" + srv.Endpoints()[0]
	files := []string{"ETCDCTL_CACERT=" + ca, "ETCDCTL_CERT=" + cert, "ETCDCTL_KEY=" + key}
	out := with(t, append(files, at), "show", "x").exits(0).stdout.String()
	if !strings.Contains(out, "free") {
		t.Errorf("with files: %s", out)
	}
	skip := append([]string{"ETCDCTL_INSECURE_SKIP_TLS_VERIFY=true", at}, files[1:]...)
	with(t, skip, "show", "x").exits(0)
	// They ask for so long, one beside the other: a busy machine takes seconds to connect.
	const patient = 8 * time.Second
	show := func(env ...string) *process {
		return with(t, append([]string{at}, env...), "show", "x", "--command-timeout="+patient.String(),
			"--dial-timeout="+patient.String())
	}
	for what, p := range map[string]*process{
		"certificate signed by unknown authority": show(files[1:]...),
		// etcd's client reports an ended login as a bare deadline
		"unknown authority": show(append(files[1:], "ETCDCTL_USER=root:secret")...),
	} {
		p.exits(69)
		if !strings.Contains(p.stderr.String(), what) || strings.Contains(p.stderr.String(), "secret") {
			t.Errorf("stderr %q, want %q", p.stderr, what)
		}
	}
}

// A server that refuses a client certificate closes the connection. The command has the certificate, and says what is
// wrong with it.
func TestExpiredClientCertificateIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, _, key := certificates(t, dir)
	expired := []string{"ETCDCTL_ENDPOINTS=https://127.0.0.1:1", "ETCDCTL_CACERT=" + ca,
		"ETCDCTL_CERT=" + filepath.Join(dir, "expired.pem"), "ETCDCTL_KEY=" + key}
	p := with(t, expired, "show", "x").exits(64)
	if want := `the certificate "CN=billing-1" (serial 3) expired at 20`; !strings.Contains(p.stderr.String(), want) {
		t.Errorf("stderr %q, want %q", p.stderr, want)
	}
}

// certificates writes a CA, a certificate for 127.0.0.1 that is valid for servers and clients, and beside it one for a
// client that has expired, expired.pem, with the same key.
func certificates(t *testing.T, dir string) (ca, cert, key string) {
	t.Helper()
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	from, until := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA of a test"}, NotBefore: from, NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, authority, authority, &caKey.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: from, NotAfter: until, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, authority, &leafKey.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	old := *leaf
	old.SerialNumber, old.Subject = big.NewInt(3), pkix.Name{CommonName: "billing-1"}
	old.NotBefore, old.NotAfter = from.Add(-time.Hour), from
	oldDER, err := x509.CreateCertificate(rand.Reader, &old, authority, &leafKey.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	write("expired.pem", "CERTIFICATE", oldDER)
	keyDER, err := x509.MarshalPKCS8PrivateKey(leafKey)
	if err != nil {
		t.Fatal(err)
	}
	ca, cert = write("ca.pem", "CERTIFICATE", caDER), write("cert.pem", "CERTIFICATE", leafDER)
	return ca, cert, write("key.pem", "PRIVATE KEY", keyDER)
}
