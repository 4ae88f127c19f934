package session_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/session"
)

func TestClientConfigIsAsDocumented(t *testing.T) {
	cfg := session.ClientConfig("a:1", "b:2")
	if len(cfg.Endpoints) != 2 || cfg.Endpoints[0] != "a:1" || cfg.Endpoints[1] != "b:2" {
		t.Errorf("endpoints %q", cfg.Endpoints)
	}
	for setting, is := range map[string]bool{
		"DialTimeout":             cfg.DialTimeout == 5*time.Second,
		"DialKeepAliveTime":       cfg.DialKeepAliveTime == 10*time.Second,
		"DialKeepAliveTimeout":    cfg.DialKeepAliveTimeout == 3*time.Second,
		"PermitWithoutStream":     !cfg.PermitWithoutStream,
		"MaxUnaryRetries":         cfg.MaxUnaryRetries == 5,
		"BackoffWaitBetween":      cfg.BackoffWaitBetween == 50*time.Millisecond,
		"BackoffJitterFraction":   cfg.BackoffJitterFraction == 0.5,
		"AutoSyncInterval":        cfg.AutoSyncInterval == 0,
		"MaxCallSendMsgSize":      cfg.MaxCallSendMsgSize == 0,
		"MaxCallRecvMsgSize":      cfg.MaxCallRecvMsgSize == 0,
		"Logger":                  cfg.Logger != nil && !cfg.Logger.Core().Enabled(zap.FatalLevel),
		"DialOptions":             len(cfg.DialOptions) == 1,
		"TLS, Username, Password": cfg.TLS == nil && cfg.Username == "" && cfg.Password == "",
	} {
		if !is {
			t.Errorf("%s is not what the documentation of ClientConfig says", setting)
		}
	}
}

func TestNewClientRefusesBadArgumentsBeforeItConnects(t *testing.T) {
	good := func() clientv3.Config { return session.ClientConfig("127.0.0.1:1") }
	for argument, c := range map[string]struct {
		ctx    context.Context
		change func(*clientv3.Config)
	}{
		"ctx":           {nil, func(*clientv3.Config) {}},
		"cfg.Endpoints": {t.Context(), func(cfg *clientv3.Config) { cfg.Endpoints = nil }},
		"cfg.Password":  {t.Context(), func(cfg *clientv3.Config) { cfg.Username = "service" }},
	} {
		cfg := good()
		c.change(&cfg)
		cli, err := session.NewClient(c.ctx, cfg)
		var bad *holdfast.ArgumentError
		if cli != nil || !errors.As(err, &bad) || bad.Argument != argument {
			t.Errorf("%s: %v, %v", argument, cli, err)
		}
	}
}

func TestClientOutlivesTheContextOfNewClient(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	life, end := context.WithCancel(t.Context())
	cfg := session.ClientConfig("127.0.0.1:1")
	cfg.Context = life
	cli, err := session.NewClient(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cli.Close() }()
	if len(cfg.DialOptions) != 1 {
		t.Errorf("the caller's Config has %d DialOptions", len(cfg.DialOptions))
	}
	cancel()
	if err := cli.Ctx().Err(); err != nil {
		t.Errorf("the client ended with the context of NewClient: %v", err)
	}
	end()
	if err := cli.Ctx().Err(); err == nil {
		t.Error("the client has not ended with cfg.Context")
	}
}

func TestNewClientReturnsWhenItsContextEnds(t *testing.T) {
	reason := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	life, end := context.WithTimeout(t.Context(), 20*time.Second)
	defer end()
	for _, user := range []string{"", "service"} { // without and with a login
		cfg := session.ClientConfig("http://root:hunter2@127.0.0.1:1", "127.0.0.1:2")
		cfg.DialTimeout, cfg.Context = 0, life
		if user != "" {
			cfg.Username, cfg.Password = user, "swordfish"
		}
		cli, err := session.NewClient(ctx, cfg)
		if cli != nil || !errors.Is(err, context.Canceled) || !errors.Is(err, reason) {
			t.Errorf("%v, %v", cli, err)
		}
		if life.Err() != nil {
			t.Error("NewClient waited for the end of cfg.Context")
		}
		for _, secret := range []string{"hunter2", "swordfish"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%q in %v", secret, err)
			}
		}
		want := `etcd at "http://127.0.0.1:1", "127.0.0.1:2": `
		if user != "" {
			want = `etcd at "http://127.0.0.1:1", "127.0.0.1:2" as user "service": `
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %s", err, want)
		}
	}
}

// etcd refuses logins while it changes its leader, for longer than etcd's client repeats them.
func TestNewClientTriesOnWhileEtcdChangesItsLeader(t *testing.T) {
	for name, c := range map[string]struct {
		refuses     time.Duration
		silent      bool // logins get no reply at all
		unreachable bool
		versions    bool  // no login; the client asks for versions instead
		want        error // nil: a client
		says        string
	}{
		"for a while":                 {refuses: 3 * time.Second},
		"for longer than DialTimeout": {refuses: time.Hour, want: context.DeadlineExceeded, says: "; last error: "},
		"no reply":                    {silent: true, want: context.DeadlineExceeded},
		"no connection":               {unreachable: true, want: etcderr.ErrNotConnected, says: "no listener"},
		"no connection for versions": {
			unreachable: true, versions: true, want: etcderr.ErrNotConnected, says: "no listener",
		},
	} {
		bubble.Test(t, func(t *testing.T) {
			begin := time.Now()
			auth := &login{until: begin.Add(c.refuses), silent: c.silent}
			dial := auth.serve(t)
			if c.unreachable {
				dial = func(context.Context, string) (net.Conn, error) { return nil, errors.New("no listener") }
			}
			cfg := session.ClientConfig("passthrough:///fake")
			if cfg.RejectOldCluster = c.versions; !c.versions {
				cfg.Username, cfg.Password = "service", "swordfish"
			}
			cfg.DialOptions = append(cfg.DialOptions, grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(dial))
			cli, err := session.NewClient(t.Context(), cfg)
			took := time.Since(begin)
			if c.want == nil {
				if err != nil || took < c.refuses || took > c.refuses+2*time.Second {
					t.Fatalf("%s: after %v: %v", name, took, err)
				}
				_ = cli.Close()
				return
			}
			if !errors.Is(err, c.want) || took > 6*time.Second || !strings.Contains(err.Error(), c.says) ||
				strings.Contains(err.Error(), "leader changed") != (c.refuses > 0) ||
				errors.Is(err, etcderr.ErrNotConnected) != c.unreachable {
				t.Errorf("%s: after %v: %v", name, took, err)
			}
		})
	}
}

// Only the login of NewClient is repeated. Later ones belong to requests, which have loops of their own.
func TestLaterLoginsAreNotRepeated(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		auth := &login{}
		cfg := session.ClientConfig("passthrough:///fake")
		cfg.Username, cfg.Password = "service", "swordfish"
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(auth.serve(t)))
		cli, err := session.NewClient(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cli.Close() }()
		auth.count.Store(0)
		auth.until = time.Now().Add(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := cli.Authenticate(ctx, "service", "swordfish"); err == nil || ctx.Err() != nil {
			t.Errorf("%v after %v", err, ctx.Err())
		}
		if n := auth.count.Load(); n != 1 {
			t.Errorf("sent %d times", n)
		}
	})
}

// login is an etcd that knows no request but the login, which it refuses for a while.
type login struct {
	pb.UnimplementedAuthServer
	until  time.Time
	silent bool
	count  atomic.Int64
}

func (l *login) Authenticate(ctx context.Context, _ *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	l.count.Add(1)
	switch {
	case l.silent:
		<-ctx.Done()
		return nil, ctx.Err()
	case time.Now().Before(l.until):
		return nil, rpctypes.ErrGRPCLeaderChanged
	}
	return &pb.AuthenticateResponse{Token: "token"}, nil
}

// serve starts the server, which ends with the test, and returns a dialer to it.
func (l *login) serve(t *testing.T) func(context.Context, string) (net.Conn, error) {
	return serve(t, func(s *grpc.Server) { pb.RegisterAuthServer(s, l) })
}

// serve starts a server, which ends with the test, and returns a dialer to it.
func serve(t *testing.T, register func(*grpc.Server)) func(context.Context, string) (net.Conn, error) {
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	register(server)
	served := make(chan struct{})
	go func() { // joined in the cleanup
		defer close(served)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() { server.Stop(); <-served })
	return func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }
}

// A request on a half-open connection does not hang until its context ends: the client gives up the connection 13 s
// after the last message.
func TestDeafConnectionIsGivenUp(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		cli, n := c.connect(t, session.ClientConfig("passthrough:///fake"))
		if _, err := cli.Get(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		close(n.conns[0].deaf)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := cli.Get(ctx, "x"); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); len(n.conns) != 2 || d < 10*time.Second || d > 15*time.Second {
			t.Errorf("%d connections; answered after %v, documented are 10 s to the ping and 3 s for its reply",
				len(n.conns), d)
		}
	})
}

// etcd closes a connection on which it is pinged while no request is in flight.
func TestIdleConnectionIsKept(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		cli, n := c.connect(t, session.ClientConfig("passthrough:///fake"))
		sess, err := session.New(t.Context(), cli, quiet(session.Options{TTL: 600 * time.Second}))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Minute)
		if err := sess.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if tried := n.attempts(); len(tried) != 1 {
			t.Errorf("%d connections in 20 minutes with few requests", len(tried))
		}
	})
}

// However long an outage lasts, the client tries to connect about every two seconds.
func TestOutageIsNotFollowedByALongPause(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		cli, n := c.connect(t, session.ClientConfig("passthrough:///fake"))
		if _, err := cli.Get(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		n.refuse(true)
		_ = n.conns[0].Close()
		asked := make(chan error, 1)
		go func() { // joined below
			_, err := cli.Get(t.Context(), "x")
			asked <- err
		}()
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		tried := n.attempts()
		if len(tried) < 400 || len(tried) > 1000 {
			t.Errorf("%d attempts to connect in 20 minutes", len(tried))
		}
		n.refuse(false)
		back := time.Now()
		if err := <-asked; err != nil {
			t.Error(err)
		}
		if d := time.Since(back); d > 2400*time.Millisecond {
			t.Errorf("connected %v after etcd was back", d)
		}
	})
}
