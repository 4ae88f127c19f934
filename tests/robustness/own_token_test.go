package robustness

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// issuer signs tokens for a user, as a service beside etcd does that has its key.
type issuer struct {
	g *guarded

	mu       sync.Mutex // protects what follows
	tokens   []string
	revision uint64 // of users and roles, for which the last one is good
}

// sign returns a new token.
func (i *issuer) sign(ctx context.Context, validity time.Duration) (token string, revision uint64, err error) {
	status, err := i.g.admin.AuthStatus(ctx)
	if err != nil {
		return "", 0, err
	}
	token, err = jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"username": "service", "revision": status.AuthRevision, "exp": time.Now().Add(validity).Unix(),
	}).SignedString([]byte(tokenKey))
	return token, status.AuthRevision, err
}

// issue replaces the token each second, long before it expires, until the test ends.
func (i *issuer) issue(t *testing.T) {
	ctx, end := context.WithCancel(context.Background())
	issued := make(chan struct{})
	t.Cleanup(func() { end(); <-issued })
	first := make(chan struct{})
	go func() { // joined in the cleanup
		defer close(issued)
		for ctx.Err() == nil {
			token, revision, err := i.sign(ctx, 8*time.Second)
			if err != nil {
				continue
			}
			i.mu.Lock()
			i.tokens, i.revision = append(i.tokens, token), revision
			if len(i.tokens) == 1 {
				close(first)
			}
			i.mu.Unlock()
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}()
	<-first
}

func (i *issuer) last() (token string, revision uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.tokens[len(i.tokens)-1], i.revision
}

// GetRequestMetadata gives each request the present token, as docs/client.md shows.
func (i *issuer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, _ := i.last()
	return map[string]string{rpctypes.TokenFieldNameGRPC: token}, nil
}

func (i *issuer) RequireTransportSecurity() bool { return false }

// expired reports whether etcd refuses a token.
func (i *issuer) expired(t *testing.T, token string) bool {
	cfg := session.ClientConfig(i.g.srv.Endpoints()...)
	cfg.Token = token
	cli, err := clientv3.New(cfg)
	must(t)(nil, err)
	defer func() { _ = cli.Close() }()
	_, err = cli.Get(deadline(t), "x")
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision)
}

// A program with tokens of its own replaces them while its session lives: what is held stays held, and what waits and
// observes goes on.
func TestLockOutlivesATokenThatTheProgramReplaces(t *testing.T) {
	t.Parallel()
	g := guard(t, signedTokens(t, "10m"))
	g.user(t, "service", "locks", "elections", "data")
	other := open(t, g.admin, session.Options{TTL: 600 * time.Second})
	ahead, err := locker.NewMutex(other, "waited-for").Lock(deadline(t))
	must(t)(nil, err)

	tokens := &issuer{g: g}
	tokens.issue(t)
	link := g.srv.Link(t)
	cfg := session.ClientConfig(link.Endpoints()...)
	cfg.DialOptions = append(append(cfg.DialOptions, link.DialOptions()...), grpc.WithPerRPCCredentials(tokens))
	sess := open(t, connectWith(t, cfg), session.Options{TTL: 30 * time.Second})
	lk, err := locker.NewMutex(sess, "x").Lock(deadline(t))
	must(t)(nil, err)
	lease := lk.Lease()
	waiter := make(chan error, 1)
	go func() { // joined below
		_, err := locker.NewMutex(sess, "waited-for").Lock(deadline(t))
		waiter <- err
	}()
	await(t, "it waits", func() bool {
		queue, err := g.admin.Get(deadline(t), "holdfast/lock/waited-for/@/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && queue.Count == 2
	})

	before, _ := tokens.last()
	await(t, "the token has expired", func() bool { return tokens.expired(t, before) })
	must(t)(etcdfence.NewWriter(lk).Put(deadline(t), "billing/data/state", "v"))
	must(t)(nil, link.Wait(deadline(t), "LeaseKeepAlive", link.Count()["LeaseKeepAlive"]+2)) // one is answered

	g.user(t, "another") // no token from before is good for these users and roles
	status, err := g.admin.AuthStatus(deadline(t))
	must(t)(nil, err)
	await(t, "there is another token", func() bool {
		_, revision := tokens.last()
		return revision == status.AuthRevision
	})
	must(t)(election.New(sess, "later").With(election.Options{Value: "v"}).Campaign(deadline(t)))
	must(t)(nil, ahead.Unlock(deadline(t)))
	must(t)(nil, <-waiter)
	await(t, "held, or lost", func() bool { return lk.Check() == nil || errors.Is(lk.Check(), holdfast.ErrLost) })
	must(t)(nil, lk.Check())
	if sess.Lease() != lease {
		t.Errorf("lease %x → %x", lease, sess.Lease())
	}
}

// A token in Config.Token is never replaced. When it has expired, the session is lost at its deadline, and says why.
func TestSessionIsLostWithATokenThatIsNotReplaced(t *testing.T) {
	t.Parallel()
	g := guard(t, signedTokens(t, "10m"))
	g.user(t, "service", "locks")
	for ctx := deadline(t); ; {
		cfg := session.ClientConfig(g.srv.Endpoints()...)
		var err error
		cfg.Token, _, err = (&issuer{g: g}).sign(ctx, 2*time.Second)
		must(t)(nil, err)
		lost := make(chan session.Event, 100)
		sess, err := session.New(ctx, connectWith(t, cfg), session.Options{
			TTL: 3 * time.Second, StayLost: true, Logger: slog.New(slog.DiscardHandler), OnStateChange: func(ev session.Event) {
				if ev.State == holdfast.Lost {
					lost <- ev
				}
			},
		})
		if err == nil {
			err = (<-lost).Err
			_ = sess.Close(ctx) // refused
		}
		if errors.Is(err, rpctypes.ErrInvalidAuthToken) {
			return
		}
		t.Log(err) // on a busy machine a lease may expire before the token does
		must(t)(nil, ctx.Err())
	}
}
