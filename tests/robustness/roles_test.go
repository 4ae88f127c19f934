package robustness

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/lastrun"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/member"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/shard"
	"github.com/holdfast-go/holdfast/view"
)

// holdersSession is the context key of a session whose locks may be freed.
type holdersSession struct{}

// duty is an operation and the documented roles that it needs.
type duty struct {
	roles []string
	do    func(ctx context.Context, cli *clientv3.Client) error
}

// inSession returns a function that runs do in a new session.
func inSession(
	do func(ctx context.Context, sess *session.Session) error,
) func(context.Context, *clientv3.Client) error {
	return func(ctx context.Context, cli *clientv3.Client) error {
		sess, err := session.New(ctx, cli, session.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		err = do(ctx, sess)
		_ = sess.Close(ctx) // etcd refuses it to some roles
		return err
	}
}

// freeLocks kicks and removes.
func freeLocks(ctx context.Context, cli *clientv3.Client) error {
	sess := ctx.Value(holdersSession{}).(*session.Session) // a fresh hold: a request that stands is not written again
	var kicked, removed, detached *locker.Lock
	for _, lk := range []**locker.Lock{&kicked, &removed, &detached} {
		var err error
		if *lk, err = locker.NewMutex(sess, rand.Text()).Lock(ctx); err != nil {
			return err
		}
		defer func() { _ = (*lk).Unlock(ctx) }()
	}
	adm := admin.New(cli, admin.Options{})
	tree, err := locker.NewTreeMutex(sess, rand.Text()).Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tree.Unlock(ctx) }()
	if _, err := detached.Detach(ctx, time.Minute); err != nil {
		return err
	}
	return errors.Join(
		adm.Kick(ctx, holdfast.KindLock, detached.Name(), detached.Token(), "x"),
		adm.Kick(ctx, holdfast.KindLock, kicked.Name(), kicked.Token(), "x"),
		adm.Kick(ctx, holdfast.KindTree, tree.Name(), tree.Token(), "x"),
		adm.Remove(ctx, holdfast.KindLock, removed.Name(), removed.Token(), "x"))
}

var duties = map[string]duty{
	"take locks": {[]string{"locks"}, inSession(func(ctx context.Context, sess *session.Session) error {
		return contend(ctx, locker.NewMutex(sess, "billing/any"))
	})},
	"take one lock": {[]string{"job-7"}, inSession(func(ctx context.Context, sess *session.Session) error {
		return contend(ctx, locker.NewMutex(sess, "billing/job-7"))
	})},
	"hand over a lock": {[]string{"job-7"}, inSession(func(ctx context.Context, sess *session.Session) error {
		lk, err := locker.NewMutex(sess, "billing/job-7").Lock(ctx)
		if err != nil {
			return err
		}
		ticket, err := lk.Detach(ctx, time.Minute)
		if err != nil {
			return err
		}
		if lk, err = locker.Attach(ctx, sess, ticket, locker.Options{}); err != nil {
			return err
		}
		if err := lk.Unlock(ctx); err != nil {
			return err
		}
		var ended *holdfast.TicketError
		if _, err = locker.Attach(ctx, sess, ticket, locker.Options{}); !errors.As(err, &ended) {
			return fmt.Errorf("a ticket that was used: %w", err)
		}
		return nil
	})},
	"record a run": {[]string{"job-7"}, inSession(func(ctx context.Context, sess *session.Session) error {
		mu := locker.NewMutex(sess, "billing/job-7")
		return mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
			_, err := lastrun.Read(ctx, sess, holdfast.KindLock, mu.Name())
			return errors.Join(err, lastrun.Record(ctx, lk, "2026-03-29", time.Hour))
		})
	})},
	"take permits": {[]string{"semaphores"}, inSession(func(ctx context.Context, sess *session.Session) error {
		s := locker.NewSemaphore(sess, "billing/workers", 2)
		nothing := func(context.Context, *locker.Permit) error { return nil }
		return errors.Join(s.Do(ctx, 1, nothing), s.TryDo(ctx, 2, nothing))
	})},
	"wait for permits": {[]string{"semaphores"}, inSession(waitForPermits)},
	"take a path": {[]string{"trees"}, inSession(func(ctx context.Context, sess *session.Session) error {
		nothing := func(context.Context, *locker.Lock) error { return nil }
		return locker.NewTreeMutex(sess, "billing/job-7").Do(ctx, nothing)
	})},
	"take an etcdctl lock": {[]string{"legacy"}, inSession(func(ctx context.Context, sess *session.Session) error {
		return contend(ctx, locker.NewMutexAt(sess, "/legacy/job"))
	})},
	"write behind a fence": {[]string{"locks", "data"}, inSession(func(ctx context.Context, sess *session.Session) error {
		return locker.NewMutex(sess, "x").Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
			_, err := etcdfence.NewWriter(lk).Put(ctx, "billing/data/state", "v")
			return err
		})
	})},
	"lead": {[]string{"elections"}, inSession(func(ctx context.Context, sess *session.Session) error {
		term, err := election.New(sess, "mine").With(election.Options{Value: "v"}).Campaign(ctx)
		if err != nil {
			return err
		}
		return errors.Join(term.Proclaim(ctx, "w"), term.Resign(ctx))
	})},
	"read the leader": {[]string{"observers"}, func(ctx context.Context, cli *clientv3.Client) error {
		_, err := election.NewReader(cli, "led").Leader(ctx)
		return err
	}},
	"watch the leader": {[]string{"observers"}, func(ctx context.Context, cli *clientv3.Client) error {
		o, err := election.NewReader(cli, "led").Observer(ctx)
		if err == nil {
			o.Close()
		}
		return err
	}},
	"join a group": {[]string{"members"}, inSession(func(ctx context.Context, sess *session.Session) error {
		m, err := member.Join(ctx, sess, "workers", member.Options{})
		if err != nil {
			return err
		}
		return errors.Join(m.Update(ctx, "v"), m.Leave(ctx))
	})},
	"share shards": {[]string{"shards"}, inSession(func(ctx context.Context, sess *session.Session) error {
		ctx, cancel := context.WithCancelCause(ctx)
		done := errors.New("done")
		orders := shard.New(sess, "orders", 2).With(shard.Options{OnError: func(_ int, err error) { cancel(err) }})
		err := orders.Run(ctx, func(context.Context, *shard.Shard) error { cancel(done); return nil })
		switch cause := context.Cause(ctx); {
		case cause == nil:
			return err
		case errors.Is(cause, done):
			return nil
		default:
			return cause
		}
	})},
	"steer shards": {[]string{"shard-operators"}, func(ctx context.Context, cli *clientv3.Client) error {
		sess, name := ctx.Value(holdersSession{}).(*session.Session), rand.Text()
		running, stop := context.WithCancel(ctx)
		owned, ended := make(chan struct{}, 1), make(chan struct{})
		go func() {
			defer close(ended)
			orders := shard.New(sess, name, 1).With(shard.Options{Member: "a", Settle: -1})
			_ = orders.Run(running, func(ctx context.Context, _ *shard.Shard) error {
				select {
				case owned <- struct{}{}:
				default:
				}
				<-ctx.Done()
				return nil
			})
		}()
		defer func() { stop(); <-ended }()
		select {
		case <-owned:
		case <-ctx.Done():
			return ctx.Err()
		}
		adm := admin.New(cli, admin.Options{})
		drained := adm.DrainMember(ctx, name, "a")
		_, undrained := adm.UndrainMember(ctx, name, "a")
		_, moved := adm.MoveShard(ctx, name, 0, "a", time.Second)
		return errors.Join(drained, undrained, moved)
	}},
	"read who owns a shard": {[]string{"shard-readers"}, func(ctx context.Context, cli *clientv3.Client) error {
		r := shard.NewReader(cli, "orders")
		if _, err := r.Owners(ctx); err != nil {
			return err
		}
		o, err := r.Observer(ctx)
		if err == nil {
			o.Close()
		}
		return err
	}},
	"read a group": {[]string{"member-readers"}, func(ctx context.Context, cli *clientv3.Client) error {
		r := member.NewReader(cli, "workers")
		if _, err := r.Members(ctx); err != nil {
			return err
		}
		o, err := r.Observer(ctx)
		if err == nil {
			o.Close()
		}
		return err
	}},
	"inspect holders and waiters": {[]string{"inspectors"}, func(ctx context.Context, cli *clientv3.Client) error {
		adm := admin.New(cli, admin.Options{})
		q, err := adm.Show(ctx, holdfast.KindElection, "led")
		if err == nil && (len(q.Entries) != 1 || q.Entries[0].TTL <= 0) {
			err = fmt.Errorf("%+v", q)
		}
		for _, kind := range layout.Kinds {
			for _, listErr := range adm.List(ctx, kind, "") {
				err = errors.Join(err, listErr)
			}
		}
		_, groupErr := member.NewReader(cli, "workers").Members(ctx)
		err = errors.Join(err, groupErr)
		for _, listErr := range adm.Sessions(ctx) {
			err = errors.Join(err, listErr)
		}
		for _, watchErr := range adm.Events(ctx, holdfast.KindElection, "led") {
			return errors.Join(err, watchErr)
		}
		return err
	}},
	"free locks": {[]string{"admins"}, freeLocks},
	"ask a leader to resign": {[]string{"elections"}, inSession(func(ctx context.Context, sess *session.Session) error {
		term, err := election.New(sess, rand.Text()).With(election.Options{Value: "v"}).Campaign(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = term.Resign(ctx) }()
		return admin.New(sess.Client(), admin.Options{}).Kick(ctx, holdfast.KindElection, term.Name(), term.Token(), "x")
	})},
	"ask for a permit": {[]string{"semaphores"}, inSession(func(ctx context.Context, sess *session.Session) error {
		s := locker.NewSemaphore(sess, rand.Text(), 2)
		p, err := s.Acquire(ctx, 1)
		if err != nil {
			return err
		}
		defer func() { _ = p.Release(ctx) }() // the holder may have been told by then
		adm := admin.New(sess.Client(), admin.Options{})
		q, err := adm.Show(ctx, holdfast.KindSemaphore, s.Name())
		if err != nil {
			return err
		}
		return adm.Kick(ctx, holdfast.KindSemaphore, s.Name(), holdfast.Token(q.Entries[0].Revision), "x")
	})},
	"free locks, and ring": {[]string{"admins", "ringers"}, func(ctx context.Context, cli *clientv3.Client) error {
		sess := ctx.Value(holdersSession{}).(*session.Session)
		key := lease.Open(sess).Lease().Key()
		before, err := sess.Client().Get(ctx, key)
		if err != nil {
			return err
		}
		if err := freeLocks(ctx, cli); err != nil {
			return err
		}
		after, err := sess.Client().Get(ctx, key)
		if err == nil && after.Kvs[0].ModRevision == before.Kvs[0].ModRevision {
			err = rpctypes.ErrPermissionDenied // it went without
		}
		return err
	}},
	"guard a resource": {[]string{"marks"}, func(ctx context.Context, cli *clientv3.Client) error {
		m, err := etcdfence.NewMarks(cli, etcdfence.MarksOptions{})
		if err != nil {
			return err
		}
		return m.Admit(ctx, rand.Text(), fencing.Claim{Name: "x", Token: 1})
	}},
	"raise the epoch": {[]string{"operator"}, func(ctx context.Context, cli *clientv3.Client) error {
		epoch, err := etcdfence.Epoch(ctx, cli, "")
		if err == nil {
			_, err = etcdfence.BumpEpoch(ctx, cli, "", epoch+1, audit.Func(func(context.Context, audit.Record) {}))
		}
		return err
	}},
}

// contend acquires the lock with Lock, with Do behind another goroutine of the
// session, and with TryDo.
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

// waitForPermits has two sessions wait. The one in front writes to the turn of the other, too.
func waitForPermits(ctx context.Context, sess *session.Session) error {
	other, err := session.New(ctx, sess.Client(), session.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { _ = other.Close(ctx) }()
	name := rand.Text()
	all, err := locker.NewSemaphore(sess, name, 2).Acquire(ctx, 2)
	if err != nil {
		return err
	}
	waits, done := make(chan struct{}, 100), make(chan error, 2)
	for _, of := range []*session.Session{sess, other} {
		sem := locker.NewSemaphore(of, name, 2).With(locker.Options{OnWait: func(view.Place) { waits <- struct{}{} }})
		go func() {
			done <- sem.Do(ctx, 1, func(context.Context, *locker.Permit) error { return nil })
		}()
		select {
		case <-waits:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.Join(all.Release(ctx), <-done, <-done)
}

// The roles in docs/client.md suffice for each duty, and every duty fails once any of their permissions is reduced.
func TestDocumentedRolesAreMinimal(t *testing.T) {
	t.Parallel()
	g := guard(t, nil)
	holders := open(t, g.admin, session.Options{})
	_, err := election.New(holders, "led").With(election.Options{Value: "leader"}).Campaign(deadline(t))
	must(t)(nil, err)
	used := map[string]bool{"controllers": true} // TestDocumentedRoleOfAnElectorIsMinimal of tests/kubelock
	for what, d := range duties {
		g.user(t, what, d.roles...)
		try := func() error {
			cli := g.client(t, what, nil)
			defer func() { _ = cli.Close() }()
			return d.do(context.WithValue(deadline(t), holdersSession{}, holders), cli)
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
					err := try()
					if err == nil && strings.HasPrefix(p.key, "holdfast/claim/") {
						// Below a prefix one locks without claims, and the log says what that costs.
					} else if !errors.Is(err, rpctypes.ErrPermissionDenied) {
						t.Errorf("%s, with permission of %q on %s reduced to %v: %v", what, role, p.key, kind, err)
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
			t.Errorf("no duty tests role %q of docs/client.md", role)
		}
	}
}

// weaker returns the permissions that grant less than kind; -1 is no permission.
func weaker(kind clientv3.PermissionType) []clientv3.PermissionType {
	if kind == clientv3.PermissionType(clientv3.PermReadWrite) {
		return []clientv3.PermissionType{-1, clientv3.PermissionType(clientv3.PermRead),
			clientv3.PermissionType(clientv3.PermWrite)}
	}
	return []clientv3.PermissionType{-1}
}

// A role is refused what belongs to other roles, and the error is not mistaken
// for an outage.
func TestDocumentedRolesGrantNothingElse(t *testing.T) {
	t.Parallel()
	g := guard(t, nil)
	holders := open(t, g.admin, session.Options{})
	_, err := election.New(holders, "led").With(election.Options{Value: "leader"}).Campaign(deadline(t))
	must(t)(nil, err)
	for role, forbidden := range map[string][]string{
		"locks": {"lead", "watch the leader", "raise the epoch", "guard a resource", "take an etcdctl lock",
			"write behind a fence"},
		"elections":  {"take locks", "raise the epoch"},
		"semaphores": {"take locks", "take a path", "lead", "raise the epoch"},
		"trees":      {"take locks", "take permits", "lead", "raise the epoch"},
		"shards":     {"take locks", "lead", "join a group", "raise the epoch"},
		"observers":  {"lead", "take locks", "raise the epoch"},
		"inspectors": {"lead", "take locks", "raise the epoch", "free locks"},
		"admins":     {"lead", "take locks", "raise the epoch", "watch the leader", "write behind a fence"},
		"job-7":      {"take locks", "raise the epoch", "free locks"},
		"legacy":     {"take locks", "raise the epoch"},
		"operator":   {"take locks", "lead"},
	} {
		g.user(t, role, role)
		for _, what := range forbidden {
			err := duties[what].do(context.WithValue(deadline(t), holdersSession{}, holders), g.client(t, role, nil))
			if !errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, context.DeadlineExceeded) ||
				etcderr.Classify(err) != etcderr.Unauthorized {
				t.Errorf("%s, as %q: %v", what, role, err)
			}
		}
	}
}

// docs/client.md lists what a user of one role can and cannot do to a session of
// another user.
func TestHarmARoleCanDoToOtherSessions(t *testing.T) {
	t.Parallel()
	g := guard(t, nil)
	g.user(t, "victim", "locks")
	g.user(t, "other", "job-7")
	other := g.client(t, "other", nil)
	events := make(chan session.Event, 100)
	sess := open(t, g.client(t, "victim", nil), session.Options{
		TTL: time.Minute, LockDelay: time.Minute, // a quarter of that is the time to restore the key
		OnStateChange: func(ev session.Event) { events <- ev }})
	mu := locker.NewMutex(sess, "elsewhere")
	lk, err := mu.Lock(deadline(t))
	must(t)(nil, err)
	key := lease.Open(sess).Lease().Key()
	keyIsAttached := func() bool {
		resp, err := g.admin.Get(deadline(t), key)
		return err == nil && len(resp.Kvs) == 1 && resp.Kvs[0].Lease == int64(sess.Lease())
	}
	denied := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("%s: %v", what, err)
		}
	}

	must(t)(other.Delete(deadline(t), key))
	await(t, "the session restores its deleted key", keyIsAttached)
	must(t)(other.Put(deadline(t), key, "detached"))
	await(t, "the session attaches its key to its lease again", keyIsAttached)
	_, err = other.Put(deadline(t), "holdfast/lock/billing/job-7/@/x", "", clientv3.WithLease(sess.Lease()))
	denied("attach a key to the lease of a holder", err)
	_, err = other.Revoke(deadline(t), sess.Lease())
	denied("revoke the lease of a holder", err)
	_, err = other.Delete(deadline(t), lk.Key())
	denied("delete the entry of a holder", err)
	if len(events) != 0 || lk.Check() != nil {
		t.Errorf("the session published %d events; Check: %v", len(events), lk.Check())
	}
	must(t)(nil, lk.Unlock(deadline(t)))

	must(t)(other.Revoke(deadline(t), sess.Lease()))
	for _, want := range []holdfast.State{holdfast.Lost, holdfast.Connected} {
		if ev := <-events; ev.State != want {
			t.Errorf("state after the lease of an idle session was revoked: %v (%v), want %v", ev.State, ev.Err, want)
		}
	}
	must(t)(nil, mu.Do(deadline(t), func(context.Context, *locker.Lock) error { return nil }))
}
