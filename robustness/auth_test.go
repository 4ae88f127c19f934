package robustness

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// duty is what a user with some of the documented roles does.
type duty struct {
	roles []string
	do    func(ctx context.Context, sess *session.Session, link *etcdtest.Link) error
}

var duties = map[string]duty{
	"take locks": {[]string{"locks"}, func(ctx context.Context, sess *session.Session, _ *etcdtest.Link) error {
		return contend(ctx, locker.NewMutex(sess, "billing/any"))
	}},
	"take one lock": {[]string{"job-7"}, func(ctx context.Context, sess *session.Session, _ *etcdtest.Link) error {
		return contend(ctx, locker.NewMutex(sess, "billing/job-7"))
	}},
	"take a lock of etcd's own clients": {[]string{"legacy"}, func(ctx context.Context, sess *session.Session, link *etcdtest.Link) error {
		link.LoseReply("Txn", 1, codes.Unavailable) // so that leaving puts a void
		return contend(ctx, locker.NewMutexAt(sess, "/legacy/job"))
	}},
	"write behind the fence": {[]string{"locks", "data"}, func(ctx context.Context, sess *session.Session, _ *etcdtest.Link) error {
		return locker.NewMutex(sess, "x").Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
			_, err := fencing.NewFencedWriter(lk).Put(ctx, "billing/data/state", "v")
			return err
		})
	}},
	"lead": {[]string{"elections"}, func(ctx context.Context, sess *session.Session, _ *etcdtest.Link) error {
		term, err := election.New(sess, "mine").Campaign(ctx, "v")
		if err != nil {
			return err
		}
		return errors.Join(term.Proclaim(ctx, "w"), term.Resign(ctx))
	}},
	"ask who leads": {[]string{"observers"}, func(ctx context.Context, sess *session.Session, _ *etcdtest.Link) error {
		_, err := election.New(sess, "led").Leader(ctx)
		return err
	}},
	"watch who leads": {[]string{"observers"}, func(ctx context.Context, sess *session.Session, _ *etcdtest.Link) error {
		o, err := election.New(sess, "led").Observer(ctx)
		if err == nil {
			o.Close()
		}
		return err
	}},
	"guard a resource": {[]string{"marks"}, func(ctx context.Context, sess *session.Session, _ *etcdtest.Link) error {
		m, err := fencing.NewEtcdMarks(sess.Client(), nil)
		if err != nil {
			return err
		}
		return m.Admit(ctx, rand.Text(), fencing.Claim{Name: "x", Token: 1})
	}},
	"raise the epoch": {[]string{"operator"}, func(ctx context.Context, sess *session.Session, _ *etcdtest.Link) error {
		epoch, err := fencing.Epoch(ctx, sess.Client(), "")
		if err == nil {
			_, err = fencing.BumpEpoch(ctx, sess.Client(), "", epoch+1, fencing.AuditFunc(func(context.Context, fencing.Record) {}))
		}
		return err
	}},
}

// contend takes a lock in each of the ways there are, behind another goroutine
// of the session at last.
func contend(ctx context.Context, mu *locker.Mutex) error {
	nothing := func(context.Context, *locker.Lock) error { return nil }
	first, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	second := make(chan error, 1)
	go func() { second <- mu.Do(ctx, nothing) }()
	if err := errors.Join(first.Unlock(ctx), <-second); err != nil {
		return err
	}
	return mu.TryDo(ctx, nothing)
}

// The roles in docs/client.md suffice, and of each permission less would not.
func TestEveryPermissionOfTheDocumentedRolesIsNeeded(t *testing.T) {
	t.Parallel()
	g := guard(t, nil)
	_, err := election.New(open(t, g.admin, session.Options{}), "led").Campaign(deadline(t), "leader")
	must(t)(nil, err)
	used := make(map[string]bool)
	for what, d := range duties {
		g.user(t, what, d.roles...)
		try := func() error {
			link := g.srv.Link(t)
			return d.do(deadline(t), open(t, g.client(t, what, link), session.Options{}), link)
		}
		if err := try(); err != nil {
			t.Errorf("%s, with %q: %v", what, d.roles, err)
		}
		for _, role := range d.roles {
			used[role] = true
			for _, p := range g.roles[role] {
				for _, kind := range weaker(p.kind) {
					g.revoke(t, role, p)
					if kind >= 0 {
						g.grant(t, role, permission{p.key, p.end, kind})
					}
					if err := try(); !errors.Is(err, rpctypes.ErrPermissionDenied) {
						t.Errorf("%s, with permission %v of %q on %s only: %v", what, kind, role, p.key, err)
					}
					if kind >= 0 {
						g.revoke(t, role, p)
					}
					g.grant(t, role, p)
				}
			}
		}
	}
	for role := range g.roles {
		if !used[role] {
			t.Errorf("role %q of docs/client.md is not tested", role)
		}
	}
}

// weaker are the kinds of permission that lack something of kind; -1 is none.
func weaker(kind clientv3.PermissionType) []clientv3.PermissionType {
	if kind == clientv3.PermissionType(clientv3.PermReadWrite) {
		return []clientv3.PermissionType{-1, clientv3.PermissionType(clientv3.PermRead), clientv3.PermissionType(clientv3.PermWrite)}
	}
	return []clientv3.PermissionType{-1}
}

// What a role is not for, it does not allow; and the refusal is told apart from
// an outage.
func TestRolesAllowNothingElse(t *testing.T) {
	t.Parallel()
	g := guard(t, nil)
	_, err := election.New(open(t, g.admin, session.Options{}), "led").Campaign(deadline(t), "leader")
	must(t)(nil, err)
	for role, forbidden := range map[string][]string{
		"locks":     {"lead", "watch who leads", "raise the epoch", "guard a resource", "take a lock of etcd's own clients", "write behind the fence"},
		"elections": {"take locks", "raise the epoch"},
		"observers": {"lead", "take locks", "raise the epoch"},
		"job-7":     {"take locks", "raise the epoch"},
		"legacy":    {"take locks", "raise the epoch"},
		"operator":  {"take locks", "lead"},
	} {
		g.user(t, role, role)
		for _, what := range forbidden {
			link := g.srv.Link(t)
			err := duties[what].do(deadline(t), open(t, g.client(t, role, link), session.Options{}), link)
			if !errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, context.DeadlineExceeded) ||
				backoff.Classify(err) != backoff.Unauthorised && what != "take a lock of etcd's own clients" {
				t.Errorf("%s, as %q: %v", what, role, err)
			}
		}
	}
}
