package robustness

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

// Scenario 37: the client's token expires while a lock is held. The client logs in again, and the lock stays held.
func TestLockOutlivesTheTokenOfItsClient(t *testing.T) {
	t.Parallel()
	g := guard(t, shortTokens(t))
	g.user(t, "service", "locks", "data")
	link := g.srv.Link(t)
	sess := open(t, g.client(t, "service", link), session.Options{TTL: 9 * time.Second})
	lk, err := locker.NewMutex(sess, "x").Lock(deadline(t))
	must(t)(nil, err)
	token, lease := lk.Token(), lk.Lease()

	g.expire(t)
	must(t)(etcdfence.NewWriter(lk).Put(deadline(t), "billing/data/state", "v"))
	must(t)(nil, link.Wait(deadline(t), "LeaseKeepAlive", link.Count()["LeaseKeepAlive"]+2)) // one is answered
	await(t, "held, not merely suspended", func() bool { return lk.Check() == nil })
	if lk.Token() != token || lk.Lease() != lease || sess.Lease() != lease {
		t.Errorf("token %v → %v, lease %x → %x", token, lk.Token(), lease, sess.Lease())
	}
	must(t)(nil, lk.Unlock(deadline(t)))
}

// A stream of watches keeps the token it was opened with, and stays open while it has a watch. Once the token has
// expired etcd refuses further watches on it, so later waiters and observers need another stream. The waiters of a
// session share streams, as do the observers of one Election.
func TestNewWatchesSurviveTheTokenOfAnOlderWatch(t *testing.T) {
	t.Parallel()
	wait := func(t *testing.T, sess *session.Session, name string) chan error {
		over := make(chan error, 1)
		go func() { // joined by who reads over
			_, err := locker.NewMutex(sess, name).Lock(deadline(t))
			over <- err
		}()
		return over
	}
	observe := func(t *testing.T, el *election.Election) chan error {
		over := make(chan error, 1)
		go func() { // joined by who reads over
			for leader, err := range el.Watch(deadline(t)) {
				if err != nil || leader == (election.Leader{}) {
					over <- err
					return
				}
			}
		}()
		return over
	}
	for what, watch := range map[string]func(
		t *testing.T, sess *session.Session,
	) (standing chan error, later func() chan error){
		"a waiter": func(t *testing.T, sess *session.Session) (chan error, func() chan error) {
			return wait(t, sess, "y"), func() chan error { return wait(t, sess, "x") }
		},
		"an observer": func(t *testing.T, sess *session.Session) (chan error, func() chan error) {
			el := election.NewAt(sess, "holdfast/lock/x/@")
			return observe(t, el), func() chan error { return observe(t, el) }
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			g := guard(t, shortTokens(t))
			g.user(t, "service", "locks", "elections")
			other := open(t, g.client(t, "service", nil), session.Options{TTL: 600 * time.Second})
			held, err := locker.NewMutex(other, "x").Lock(deadline(t))
			must(t)(nil, err)
			ahead, err := locker.NewMutex(other, "y").Lock(deadline(t))
			must(t)(nil, err)
			link := g.srv.Link(t)
			var counted requests
			sess := open(t, g.client(t, "service", link, counted.option()), session.Options{TTL: 600 * time.Second})
			settled(t, link) // the watch of the session key stands
			standing, later := watch(t, sess)
			must(t)(nil, link.Wait(deadline(t), "Watch", 2))
			must(t)(locker.NewMutex(sess, "audited").Lock(deadline(t)))

			g.expire(t)
			watches := counted.watches.Load()
			over := later()
			await(t, "one watch is refused, and another one asked for", func() bool {
				return counted.watches.Load() >= watches+2
			})
			audited := link.Count()["Txn"]
			must(t)(nil, link.Wait(deadline(t), "Txn", audited+6)) // two or three each second
			// One more for each token that expires before it is used, on a busy machine.
			if n := counted.watches.Load() - watches; n > 4 {
				t.Errorf("%d watches were asked for, want two: one that is refused, and one on another stream", n)
			}
			must(t)(nil, held.Unlock(deadline(t)))
			must(t)(nil, <-over)
			must(t)(nil, ahead.Unlock(deadline(t)))
			if err := <-standing; err != nil {
				t.Errorf("the watch that stood has ended: %v", err)
			}
		})
	}
}

// Scenario 37: a service that holds, waits and observes loses a role. Each call reports the permission error and not
// merely a timeout. After the role is granted again, the service recovers.
func TestWithdrawnPermissionIsReported(t *testing.T) {
	t.Parallel()
	g := guard(t, nil)
	g.user(t, "service", "locks", "elections")
	other := locker.NewMutex(open(t, g.admin, session.Options{}), "waited-for")
	ahead, err := other.Lock(deadline(t))
	must(t)(nil, err)
	link := g.srv.Link(t)
	sess := open(t, g.client(t, "service", link), session.Options{TTL: 5 * time.Second})
	held, err := locker.NewMutex(sess, "held").Lock(deadline(t))
	must(t)(nil, err)
	waiter, observer := make(chan error, 1), make(chan error, 1)
	go func() { // joined below
		_, err := locker.NewMutex(sess, "waited-for").Lock(deadline(t))
		waiter <- err
	}()
	must(t)(nil, link.Wait(deadline(t), "Watch", 2)) // that of the session key, too
	// If etcd refuses two watches on one stream, etcd's client may forget to join one of them, and its Close hangs. So
	// the observer has its own client, and with it its own stream.
	observing := g.srv.Link(t)
	apart := open(t, g.client(t, "service", observing), session.Options{TTL: 5 * time.Second})
	go func() { // joined below
		el := election.New(apart, "observed").With(election.Options{MaxAge: 3 * time.Second})
		for _, err := range el.Watch(deadline(t)) {
			if err != nil {
				observer <- err
			}
		}
	}()
	must(t)(nil, observing.Wait(deadline(t), "Watch", 2))

	must(t)(g.admin.UserRevokeRole(deadline(t), "service", "locks"))
	must(t)(g.admin.UserRevokeRole(deadline(t), "service", "elections"))
	denied := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
	start := time.Now()
	_, err = locker.NewMutex(sess, "new").Lock(deadline(t))
	denied("Lock", err)
	if _, err := election.New(sess, "new").Campaign(deadline(t)); etcderr.Classify(err) != etcderr.Unauthorized {
		t.Errorf("Campaign: %v", err)
	}
	<-held.Done()
	var lost *holdfast.LostError
	if err := held.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseExpired {
		t.Errorf("Check: %v", err)
	}
	denied("Check", held.Check())
	var acquire *view.AcquireError
	err = <-waiter
	denied("the waiter", err)
	if !errors.As(err, &acquire) {
		t.Errorf("the waiter: %v", err)
	}
	denied("the observer", <-observer)
	t.Logf("all were told after %v", time.Since(start))

	must(t)(g.admin.UserGrantRole(deadline(t), "service", "locks"))
	must(t)(nil, ahead.Unlock(deadline(t)))
	must(t)(nil, locker.NewMutex(sess, "held").Do(deadline(t), func(context.Context, *locker.Lock) error { return nil }))
}

// A watch survives the withdrawal of its role. When it must be created again, the waiter gets the permission error
// instead of waiting for the end of its context.
func TestWaiterThatMayNoLongerWatchGetsAnError(t *testing.T) {
	t.Parallel()
	g := guard(t, nil)
	g.user(t, "service", "locks")
	must(t)(locker.NewMutex(open(t, g.admin, session.Options{}), "x").Lock(deadline(t)))
	link := g.srv.Link(t)
	sess := open(t, g.client(t, "service", link), session.Options{TTL: 600 * time.Second})
	waiter := make(chan error, 1)
	go func() { // joined below
		_, err := locker.NewMutex(sess, "x").Lock(deadline(t))
		waiter <- err
	}()
	must(t)(nil, link.Wait(deadline(t), "Watch", 2)) // of its session key, and its own
	must(t)(g.admin.UserRevokeRole(deadline(t), "service", "locks"))
	link.Cut()
	link.Heal()
	if err := <-waiter; !errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the waiter: %v", err)
	}
}

// New fails for a service without any permission, and names the missing one.
func TestSessionThatMayNotWriteItsKeyIsRefused(t *testing.T) {
	t.Parallel()
	g := guard(t, nil)
	g.user(t, "nobody")
	_, err := session.New(deadline(t), g.client(t, "nobody", nil), session.Options{})
	if !errors.Is(err, rpctypes.ErrPermissionDenied) ||
		!strings.Contains(err.Error(), "etcdctl role grant-permission --prefix ROLE readwrite holdfast/session/") {
		t.Errorf("%v", err)
	}
	leases, err := g.admin.Leases(deadline(t))
	must(t)(nil, err)
	if len(leases.Leases) != 0 {
		t.Errorf("left behind: %v", leases.Leases)
	}
}

// A session that holds nothing notices a withdrawn permission by its renewals. The loss names it.
func TestSessionThatMayNoLongerReadItsKeyIsLostAndSaysWhy(t *testing.T) {
	t.Parallel()
	g := guard(t, nil)
	g.user(t, "service", "locks")
	lost := make(chan session.Event, 100)
	sess := open(t, g.client(t, "service", nil), session.Options{TTL: time.Second, OnStateChange: func(ev session.Event) {
		if ev.State == holdfast.Lost {
			lost <- ev
		}
	}})
	key := "holdfast/session/"
	g.revoke(t, "locks", permission{key: key, end: clientv3.GetPrefixRangeEnd(key)})
	g.grant(t, "locks", permission{key: key, end: clientv3.GetPrefixRangeEnd(key),
		kind: clientv3.PermissionType(clientv3.PermWrite)})
	for ctx := deadline(t); ; {
		select {
		case ev := <-lost:
			if !errors.Is(ev.Err, rpctypes.ErrPermissionDenied) {
				t.Log(ev.Err) // on a busy machine a lease of a second may expire before a renewal is answered
				continue
			}
			if !strings.Contains(ev.Err.Error(), layout.SessionKey(sess.Namespace(), ev.Lease)) {
				t.Error(ev.Err)
			}
			return
		case <-ctx.Done():
			t.Fatal("no loss names the permission")
		}
	}
}

// No log line and no error contains a password, a token or the value of an entry.
func TestSecretsStayOutOfLogsAndErrors(t *testing.T) {
	t.Parallel()
	g := guard(t, nil)
	g.user(t, "service", "locks")
	const value = "a-value-that-is-nobody-else's"
	var log bytes.Buffer // written by one handler, read after Close
	var said []string
	var mu sync.Mutex // protects secrets
	note := func(err error) {
		if err == nil {
			t.Error("not refused")
			return
		}
		said = append(said, err.Error())
	}
	cfg := session.ClientConfig(g.srv.Endpoints()...)
	cfg.Username, cfg.Password = "service", "wrong-"+password
	if _, err := session.NewClient(deadline(t), cfg); !errors.Is(err, rpctypes.ErrAuthFailed) ||
		etcderr.Classify(err) != etcderr.Unauthorized || errors.Is(err, etcderr.ErrNotConnected) {
		t.Errorf("a wrong password: %v", err)
	} else {
		note(err)
	}
	cfg.Password = password
	var secrets []string // at first the token, which only the client's own RPCs show
	cfg.DialOptions = append(cfg.DialOptions, grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
			opts ...grpc.CallOption) error {
			err := invoke(ctx, method, req, reply, cc, opts...)
			if login, ok := reply.(*pb.AuthenticateResponse); ok && err == nil {
				mu.Lock()
				defer mu.Unlock()
				secrets = append(secrets, login.Token)
			}
			return err
		}))
	cli, err := session.NewClient(deadline(t), cfg)
	must(t)(nil, err)
	defer func() { _ = cli.Close() }()
	sess, err := session.New(deadline(t), cli, session.Options{
		TTL: 2 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	must(t)(nil, err)
	lk, err := locker.NewMutex(sess, "x").Lock(deadline(t))
	must(t)(nil, err)
	_, err = etcdfence.NewWriter(lk).Put(deadline(t), "elsewhere", value)
	note(err)
	_, err = election.New(sess, "x").With(election.Options{Value: value}).Campaign(deadline(t))
	note(err)
	must(t)(g.admin.UserRevokeRole(deadline(t), "service", "locks"))
	<-lk.Done()
	note(lk.Check())
	_ = sess.Close(deadline(t)) // refused
	mu.Lock()
	defer mu.Unlock()
	if len(secrets) < 2 || secrets[0] == "" {
		t.Fatalf("tokens %q; there is one for each login", secrets)
	}
	for _, text := range append(said, log.String()) {
		for _, secret := range append(secrets, password, value) {
			if strings.Contains(text, secret) {
				t.Errorf("%q in %s", secret, text)
			}
		}
	}
}
