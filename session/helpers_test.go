package session_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/internal/testkit/fakedial"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	"github.com/holdfast-go/holdfast/session"
)

func TestMain(m *testing.M) { leak.Main(m) }

// cluster is an etcd in memory. Clients of connect have real gRPC connections to it; those of dial send directly to the
// link, which costs a fraction. All watches but a session's own go directly to the link, because clientv3's would stop
// virtual time.
type cluster struct {
	*etcdfake.Server
	link     *etcdfake.Link
	listener *bufconn.Listener
}

// start runs f in virtual time with a cluster.
func start(t *testing.T, f func(t *testing.T, c *cluster)) {
	t.Helper()
	startWith(t, etcdfake.Options{}, f)
}

func startWith(t *testing.T, o etcdfake.Options, f func(t *testing.T, c *cluster)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) { f(t, newCluster(t, o)) })
}

// newCluster returns a cluster that ends with the test.
func newCluster(t *testing.T, o etcdfake.Options) *cluster {
	t.Helper()
	srv := etcdfake.New(o)
	t.Cleanup(srv.Close)
	c := &cluster{Server: srv, link: srv.Link(), listener: bufconn.Listen(1 << 16)}
	server := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
		MinTime: 5 * time.Second, PermitWithoutStream: false, // as in etcd's embed
	}))
	c.link.Serve(server)
	served := make(chan struct{})
	go func() { // joined in the cleanup
		defer close(served)
		_ = server.Serve(c.listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return c
}

// plain are etcd's default settings for a client.
func plain() clientv3.Config {
	return clientv3.Config{Endpoints: []string{"passthrough:///fake"}, Logger: zap.NewNop()}
}

// connect returns a client with these settings, and the network between it and the cluster. Both end with the test.
func (c *cluster) connect(t *testing.T, cfg clientv3.Config) (*clientv3.Client, *network) {
	t.Helper()
	n := &network{listener: c.listener}
	cfg.DialOptions = append(cfg.DialOptions,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(n.dial))
	cli, err := clientv3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cli.Watcher = c.link.Client().Watcher
	cli.Maintenance = nil // sessions would ask for the version
	t.Cleanup(func() { _ = cli.Close() })
	return cli, n
}

func (c *cluster) dial(t *testing.T) *clientv3.Client {
	t.Helper()
	cli := fakedial.Direct(c.link, c.Members()[:1])
	cli.KV, cli.Lease = clientv3.NewKV(cli), clientv3.NewLease(cli) // a session trusts only etcd's own to repeat nothing
	cli.Watcher = c.link.Client().Watcher
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// open starts a session and closes it with the test. The watch of its key stands.
func (c *cluster) open(t *testing.T, o session.Options) *session.Session {
	t.Helper()
	return c.openOn(t, c.dial(t), o)
}

func (c *cluster) openOn(t *testing.T, cli *clientv3.Client, o session.Options) *session.Session {
	t.Helper()
	sess, err := session.New(t.Context(), cli, quiet(o))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.link.Heal()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = sess.Close(ctx) // may have been closed
	})
	synctest.Wait()
	return sess
}

// hang: requests of these methods, by default of all, are neither carried out nor answered until heal.
func (c *cluster) hang(methods ...string) {
	c.fail(etcdfake.Fate{LoseRequest: true, Silent: true}, methods...)
}

// refuse: requests of these methods are refused at once until heal.
func (c *cluster) refuse(code codes.Code, methods ...string) {
	c.fail(etcdfake.Fate{LoseRequest: true, Code: code}, methods...)
}

func (c *cluster) fail(fate etcdfake.Fate, methods ...string) {
	c.link.Plan(func(call etcdfake.Call) etcdfake.Fate {
		isEvent := call.Request == nil
		if isEvent || len(methods) > 0 && !slices.Contains(methods, call.Method) {
			return etcdfake.Fate{}
		}
		return fate
	})
}

// delay delays requests and replies until heal.
func (c *cluster) delay(request, reply time.Duration) {
	c.link.Plan(func(etcdfake.Call) etcdfake.Fate { return etcdfake.Fate{Request: request, Reply: reply} })
}

func (c *cluster) heal() { c.link.Heal() }

// count returns how many requests of a method have been sent.
func (c *cluster) count(method string) int { return c.link.Count()[method] }

// leases returns how many leases exist.
func (c *cluster) leases(t *testing.T) int {
	t.Helper()
	resp, err := c.Link().Client().Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(resp.Leases)
}

// network is what lies between a client and a cluster.
type network struct {
	mu       sync.Mutex // protects the rest
	listener *bufconn.Listener
	conns    []*deafConn
	refused  bool
	tried    []time.Time // the attempts to connect
}

func (n *network) dial(ctx context.Context, _ string) (net.Conn, error) {
	n.mu.Lock()
	refused, listener := n.refused, n.listener
	n.tried = append(n.tried, time.Now())
	n.mu.Unlock()
	if refused {
		return nil, &net.OpError{Op: "dial", Net: "fake", Err: net.ErrClosed}
	}
	conn, err := listener.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	c := &deafConn{Conn: conn, deaf: make(chan struct{}), shut: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns = append(n.conns, c)
	return c, nil
}

// refuse makes attempts to connect fail, or succeed again.
func (n *network) refuse(refused bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused, n.tried = refused, nil
}

func (n *network) attempts() []time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.tried
}

// leadTo breaks the connection; the next one leads to another cluster.
func (n *network) leadTo(c *cluster) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listener = c.listener
	_ = n.conns[len(n.conns)-1].Close()
}

// deafConn receives nothing after deaf is closed, and reports no error.
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

// quiet returns options for virtual time, where the boot-time clock would be real.
func quiet(o session.Options) session.Options {
	if o.Clock == nil {
		o.Clock = session.MonotonicClock()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// jumping returns a clock, and a function that advances it although no timer fires, as after a machine was suspended.
func jumping() (clock func() time.Duration, jump func(time.Duration)) {
	var mu sync.Mutex
	var ahead time.Duration
	mono := session.MonotonicClock()
	clock = func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return mono() + ahead
	}
	return clock, func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		ahead += d
	}
}

// await returns the session's lease.
func await(t *testing.T, sess *session.Session) *lease.Lease {
	t.Helper()
	l, err := lease.Open(sess).Await(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func keyOf(sess *session.Session) string { return lease.Open(sess).Lease().Key() }

func lossOf(t *testing.T, ev session.Event) *holdfast.LostError {
	t.Helper()
	var lost *holdfast.LostError
	if !errors.As(ev.Err, &lost) {
		t.Fatalf("event %v: %v", ev.State, ev.Err)
	}
	return lost
}

// recorder collects events.
type recorder chan session.Event

func newRecorder() recorder { return make(recorder, 1000) }

func (r recorder) record(ev session.Event) { r <- ev }

// next waits for the next event, which must enter the state want.
func (r recorder) next(t *testing.T, want holdfast.State) session.Event {
	t.Helper()
	select {
	case ev := <-r:
		if ev.State != want {
			t.Fatalf("event %v -> %v (%v), want %v", ev.Previous, ev.State, ev.Err, want)
		}
		return ev
	case <-time.After(10 * time.Minute):
		t.Fatalf("no event, want %v", want)
	}
	panic("unreachable")
}

// lineHandler sends the message of each record, Info and above.
type lineHandler chan<- string

func (h lineHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo
}

func (h lineHandler) Handle(_ context.Context, r slog.Record) error { h <- r.Message; return nil }

func (h lineHandler) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h lineHandler) WithGroup(string) slog.Handler { return h }

// unconfirmed returns the time since the last confirmed renewal of a lease was sent.
func unconfirmed(l *lease.Lease) time.Duration { return l.Trust() - l.Remaining() }
