package session_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"

	"github.com/holdfast-go/holdfast/internal/bubble"
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

// wire is how a client under ClientConfig's settings reaches a fakeEtcd that
// forbids what etcd forbids: a network whose connections can go deaf, and be
// refused.
type wire struct {
	listener *bufconn.Listener

	mu      sync.Mutex // protects what follows
	conns   []*deafConn
	refused bool
	tried   []time.Time // when a connection was asked for
}

// deafConn stops hearing at the time it is told, and never says so.
type deafConn struct {
	net.Conn
	deaf chan struct{}
	once sync.Once
	shut chan struct{}
}

func (c *deafConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.deaf:
		<-c.shut
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *deafConn) Close() error {
	c.once.Do(func() { close(c.shut) })
	return c.Conn.Close()
}

func (w *wire) dial(ctx context.Context, _ string) (net.Conn, error) {
	w.mu.Lock()
	refused := w.refused
	w.tried = append(w.tried, time.Now())
	w.mu.Unlock()
	if refused {
		return nil, &net.OpError{Op: "dial", Net: "wire", Err: net.ErrClosed}
	}
	conn, err := w.listener.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	c := &deafConn{Conn: conn, deaf: make(chan struct{}), shut: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, c)
	return c, nil
}

func (w *wire) refuse(refused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused, w.tried = refused, nil
}

func (w *wire) attempts() []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tried
}

// connect serves f as etcd does, and returns a client under ClientConfig's
// settings, changed by change if that is not nil.
func connect(t *testing.T, f *fakeEtcd, change func(*clientv3.Config)) (*clientv3.Client, *wire) {
	t.Helper()
	w := &wire{listener: bufconn.Listen(1 << 16)}
	server := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
		MinTime: 5 * time.Second, PermitWithoutStream: false, // as etcd's embed does
	}))
	pb.RegisterLeaseServer(server, f)
	pb.RegisterKVServer(server, f)
	served := make(chan struct{})
	go func() { // joined in the cleanup
		defer close(served)
		_ = server.Serve(w.listener)
	}()
	cfg := session.ClientConfig("passthrough:///wire")
	cfg.DialOptions = append(cfg.DialOptions,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(w.dial))
	if change != nil {
		change(&cfg)
	}
	cli, err := clientv3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cli.Maintenance = nil // versions are asked for on connections of their own
	t.Cleanup(func() {
		_ = cli.Close()
		server.Stop()
		<-served
	})
	return cli, w
}

// A request that hangs on a connection which has gone deaf does not hang until
// its context ends: the connection is given up 13 s after it was last heard.
func TestDeafConnectionIsGivenUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		cli, w := connect(t, f, nil)
		if _, err := cli.Get(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		close(w.conns[0].deaf)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := cli.Get(ctx, "x"); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); len(w.conns) != 2 || d < 10*time.Second || d > 15*time.Second {
			t.Errorf("%d connections; answered after %v, documented are 10 s to the ping and 3 s for its answer", len(w.conns), d)
		}
	})
}

// etcd closes a connection on which it is pinged while nothing is asked.
func TestIdleConnectionIsKept(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		f.ttl = 600 * time.Second
		cli, w := connect(t, f, nil)
		sess, err := session.New(t.Context(), cli, quiet(session.Options{TTL: 600 * time.Second}))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Minute)
		if err := sess.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if n := len(w.attempts()); n != 1 {
			t.Errorf("%d connections in 20 minutes of next to nothing", n)
		}
	})
}

// However long an outage was, connecting is tried every two seconds or so.
func TestOutageIsNotFollowedByALongPause(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		cli, w := connect(t, f, nil)
		if _, err := cli.Get(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		w.refuse(true)
		_ = w.conns[0].Close()
		asked := make(chan error, 1)
		go func() { // joined below
			_, err := cli.Get(t.Context(), "x")
			asked <- err
		}()
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		tried := w.attempts()
		if len(tried) < 400 || len(tried) > 1000 {
			t.Errorf("%d attempts to connect in 20 minutes", len(tried))
		}
		w.refuse(false)
		back := time.Now()
		if err := <-asked; err != nil {
			t.Error(err)
		}
		if d := time.Since(back); d > 2400*time.Millisecond {
			t.Errorf("connected %v after etcd was back", d)
		}
	})
}
