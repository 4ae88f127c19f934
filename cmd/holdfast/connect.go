package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/term"

	"github.com/holdfast-go/holdfast/session"
)

// connection is how to reach etcd. Its flags and variables have etcdctl's names.
type connection struct {
	endpoints      []string
	dialTimeout    time.Duration
	commandTimeout time.Duration

	discoverySRV, discoveryName string
	insecureDiscovery           bool

	encryption

	user, password, token string

	namespace string
}

// encryption is what the flags say of TLS.
type encryption struct {
	cacert, cert, key  string
	insecureTransport  bool
	insecureSkipVerify bool
}

const connectionHelp = `holdfast reaches etcd as etcdctl does. Each of these flags has an environment
variable: ETCDCTL_ and the flag's name in upper case, with "_" for "-", such as
ETCDCTL_ENDPOINTS. A flag wins over its variable. (etcdctl refuses to have both.)
Variables of etcdctl that are not listed here are ignored.

    --endpoints                 host:port or URLs, separated by commas; list all
                                members of the cluster, no load balancer
    --discovery-srv             domain whose SRV records name the endpoints, in
                                place of --endpoints: _etcd-client-ssl._tcp and
                                _etcd-client._tcp; asked once, at the start
    --discovery-srv-name        suffix of these services: _etcd-client-NAME._tcp
    --insecure-discovery        true by default; false: only servers with TLS, whose
                                certificates name the domain
    --cacert                    file of the CAs that the servers' certificates are
                                verified with; default: those of the system
    --cert, --key               files of the client's certificate and its key
    --insecure-transport        true by default, which only means: without one of
                                the flags above and without https:// in an
                                endpoint the connection is not encrypted
    --insecure-skip-tls-verify  do not verify the servers' certificates: for tests
    --user                      NAME or NAME:PASSWORD
    --password                  with --user NAME
    --auth-jwt-token            a token instead of user and password
    --dial-timeout              for the login
    --command-timeout           for a command that asks etcd once, and for "run" and
                                "elect" until they have a session

What is given to a flag can be read in the list of processes (ps), by every user
of the machine. So give a password in ETCDCTL_PASSWORD or ETCDCTL_USER, or not at
all: then holdfast asks for it on the terminal. "run" and "elect" pass their whole
environment to the command, these variables included.

--namespace has the variable HOLDFAST_NAMESPACE. It is that of
session.Options.Namespace, the first segment of all keys.
`

// ownVariables are the flags whose variables are not etcdctl's.
var ownVariables = map[string]string{"namespace": "HOLDFAST_NAMESPACE"}

func (c *connection) addFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&c.endpoints, "endpoints", []string{"127.0.0.1:2379"}, "etcd's members, separated by commas")
	f.StringVarP(&c.discoverySRV, "discovery-srv", "d", "", "`domain` whose SRV records name the endpoints")
	f.StringVar(&c.discoveryName, "discovery-srv-name", "", "`suffix` of the services that are looked up")
	f.BoolVar(&c.insecureDiscovery, "insecure-discovery", true, "take servers without TLS, too, from --discovery-srv")
	f.DurationVar(&c.dialTimeout, "dial-timeout", 2*time.Second, "for the login")
	f.DurationVar(&c.commandTimeout, "command-timeout", 5*time.Second, "until etcd must have answered")
	f.StringVar(&c.cacert, "cacert", "", "`file` of the CAs that servers' certificates are verified with")
	f.StringVar(&c.cert, "cert", "", "`file` of the client's certificate")
	f.StringVar(&c.key, "key", "", "`file` of the client's key")
	f.BoolVar(&c.insecureTransport, "insecure-transport", true, "no TLS unless another flag or https:// asks for it")
	f.BoolVar(&c.insecureSkipVerify, "insecure-skip-tls-verify", false, "do not verify certificates (for tests only)")
	f.StringVar(&c.user, "user", "", "`name[:password]`; other users of the machine can read it")
	f.StringVar(&c.password, "password", "", "`password` of --user; other users of the machine can read it")
	f.StringVar(&c.token, "auth-jwt-token", "", "`token` instead of --user; other users of the machine can read it")
	f.StringVar(&c.namespace, "namespace", session.DefaultNamespace, "first segment of all keys")
}

// fromEnvironment sets what is not given as a flag. Errors name the variable and not its value, which may be secret.
func (c *connection) fromEnvironment(f *pflag.FlagSet) error {
	var failed []error
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(connection).addFlags(own)
	own.VisitAll(func(known *pflag.Flag) {
		variable := ownVariables[known.Name]
		if variable == "" {
			variable = "ETCDCTL_" + strings.ToUpper(strings.ReplaceAll(known.Name, "-", "_"))
		}
		value := os.Getenv(variable)
		if value == "" || f.Changed(known.Name) {
			return
		}
		if err := f.Set(known.Name, value); err != nil {
			failed = append(failed, usage("%s does not have the form of --%s (%s)", variable, known.Name, known.Value.Type()))
		}
	})
	return errors.Join(failed...)
}

// dial returns a client. It asks for a missing password on the terminal.
func (c *connection) dial(ctx context.Context) (*clientv3.Client, error) {
	if err := c.discover(ctx, net.DefaultResolver.LookupSRV); err != nil {
		return nil, err
	}
	cfg, err := c.config()
	if err != nil {
		return nil, err
	}
	cfg.Context = context.WithoutCancel(ctx) // a signal ends a request, not the releases that follow it
	if len(cfg.Endpoints) == 0 {
		return nil, usage("--endpoints is empty")
	}
	return session.NewClient(ctx, cfg)
}

// config is what session.NewClient is called with.
func (c *connection) config() (clientv3.Config, error) {
	cfg := session.ClientConfig(c.endpoints...)
	cfg.DialTimeout = c.dialTimeout
	var err error
	if cfg.TLS, err = c.tls(); err != nil {
		return cfg, err
	}
	cfg.Token = c.token
	cfg.Username, cfg.Password, err = c.credentials()
	return cfg, err
}

// tls returns nil for a connection whose endpoints decide.
func (c *connection) tls() (*tls.Config, error) {
	if (c.cert == "") != (c.key == "") {
		return nil, usage("--cert and --key need each other")
	}
	byDomain := c.discoverySRV != "" && !c.insecureDiscovery
	if c.insecureTransport && c.cacert == "" && c.cert == "" && !c.insecureSkipVerify && !byDomain {
		return nil, nil
	}
	if c.insecureTransport && c.cacert == "" && c.cert == "" && !c.secureEndpoint() {
		return nil, nil // --insecure-skip-tls-verify alone asks for no TLS
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.insecureSkipVerify}
	if byDomain {
		t.ServerName = c.discoverySRV // DNS may be forged: a certificate for any of its names would not do
	}
	if c.cacert != "" {
		pem, err := os.ReadFile(c.cacert)
		if err != nil {
			return nil, usage("--cacert: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usage("--cacert: %s has no certificate in PEM", c.cacert)
		}
	}
	if c.cert != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(c.cert, c.key)
			return &pair, err
		}
		pair, err := load()
		if err != nil {
			return nil, usage("--cert and --key: %w", err)
		}
		// A server that refuses a certificate closes the connection, and says as a rule "broken pipe".
		if leaf := pair.Leaf; time.Now().After(leaf.NotAfter) {
			return nil, usage("--cert: the certificate %q (serial %x) expired at %s", leaf.Subject, leaf.SerialNumber,
				leaf.NotAfter.UTC().Format(time.RFC3339))
		}
		// Read at each connection: the files of a long "run" may be replaced.
		t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return t, nil
}

// encrypts reports whether connections are encrypted. Etcd's client goes by its first endpoint for all of them.
func (c *connection) encrypts(first string) bool {
	t, _ := c.tls()
	return strings.HasPrefix(first, "https:") || strings.HasPrefix(first, "unixs:") ||
		t != nil && !strings.HasPrefix(first, "http:")
}

func (c *connection) secureEndpoint() bool {
	for _, e := range c.endpoints {
		if strings.HasPrefix(e, "https://") || strings.HasPrefix(e, "unixs://") {
			return true
		}
	}
	return false
}

// credentials returns the user's name and password, asking for what is missing.
func (c *connection) credentials() (name, password string, err error) {
	switch {
	case c.user == "" && c.password != "":
		return "", "", usage("a password needs --user")
	case c.user != "" && c.token != "":
		return "", "", usage("--auth-jwt-token and --user exclude each other")
	case c.user == "":
		return "", "", nil
	case c.password != "" && strings.Contains(c.user, ":"): // not as a name, which errors would have
		return "", "", usage("--user has a password, and there is another one (--password, ETCDCTL_PASSWORD): give one")
	case c.password != "":
		return c.user, c.password, nil
	}
	name, password, ok := strings.Cut(c.user, ":")
	if ok {
		return name, password, nil
	}
	password, err = askPassword(name)
	return name, password, err
}

// askPassword asks on the terminal, not on stdin and stdout, which may belong to a command or a pipe.
func askPassword(name string) (string, error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return "", usage("user %q has no password, and there is no terminal to ask for it: set ETCDCTL_PASSWORD", name)
	}
	defer tty.Close()
	before, err := term.MakeRaw(int(tty.Fd())) // before the prompt: nothing that is typed then is echoed
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	defer func() { _ = term.Restore(int(tty.Fd()), before) }()
	password, err := term.NewTerminal(tty, "").ReadPassword(fmt.Sprintf("etcd password of %q: ", name))
	if err != nil { // Ctrl-C and Ctrl-D
		return "", &exitError{exitSignal + int(syscall.SIGINT), fmt.Errorf("no password was given: %w", err)}
	}
	return password, nil
}
