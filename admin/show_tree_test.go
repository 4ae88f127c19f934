package admin_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

func mustLockTree(t *testing.T, sess *session.Session, path string) *locker.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lk, err := locker.NewTreeMutex(sess, path).Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return lk
}

func TestTreeLocksAreShownAtEachPath(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		told := watch(t, adm.Events(ctx, holdfast.KindTree, "billing"))
		one, two := mustLockTree(t, a, "billing/1"), mustLockTree(t, b, "billing/2")
		lockLater(t, func(ctx context.Context) error { _, err := locker.NewTreeMutex(a, "billing").Lock(ctx); return err })
		expect(t, told, "queued a 0, acquired a 0, queued b 0, acquired b 0, queued a 1")

		q, err := adm.Show(t.Context(), holdfast.KindTree, "billing")
		if err != nil || len(q.Holders()) != 2 || q.Waiting() != 1 || q.Entries[0].Token != one.Token() {
			t.Errorf("Show: %+v, %v", q, err)
		}
		time.Sleep(3 * time.Second) // by then the entries say since when they hold
		q, err = adm.Show(t.Context(), holdfast.KindTree, "billing")
		for i, path := range []string{"billing/1", "billing/2", ""} { // which is locked below
			if err != nil || q.Entries[i].Value != path || q.Entries[i].HeldAt.IsZero() != (path == "") {
				t.Errorf("entry %d: %v, %v", i, q.Entries[i], err)
			}
		}
		names := make(map[string]int)
		for s, err := range adm.List(t.Context(), holdfast.KindTree, "") {
			if err != nil || s.Kind != holdfast.KindTree {
				t.Errorf("List: %+v, %v", s, err)
			}
			names[s.Name] = s.Waiting
		}
		if len(names) != 3 || names["billing"] != 1 || names["billing/1"] != 0 {
			t.Errorf("List: %v", names)
		}
		for _, lk := range []*locker.Lock{one, two} {
			if err := lk.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
		expect(t, told, "released a 1, released b 0, acquired a 0")
	})
}

// A tree lock can be kicked at its path and at each path above, and ends as a whole.
func TestTreeLockIsKickedAndRemoved(t *testing.T) {
	for _, path := range []string{"billing", "billing/eu", "billing/eu/7"} {
		for name, c := range map[string]struct {
			cause holdfast.Cause
			ask   func(*administrator, *locker.Lock) error
		}{
			"kicked": {holdfast.CauseKicked, func(ops *administrator, lk *locker.Lock) error {
				return ops.Kick(context.Background(), holdfast.KindTree, path, lk.Token(), "deploy")
			}},
			"removed": {holdfast.CauseRemoved, func(ops *administrator, lk *locker.Lock) error {
				return ops.Remove(context.Background(), holdfast.KindTree, path, lk.Token(), "wedged")
			}},
		} {
			t.Run(path+" "+name, func(t *testing.T) {
				inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
					a, _ := newSession(t, srv, "a")
					b, _ := newSession(t, srv, "b")
					ops := newAdministrator(srv, "ops")
					lk := mustLockTree(t, a, "billing/eu/7")
					if err := c.ask(ops, lk); err != nil {
						t.Fatal(err)
					}
					if took := ends(t, lk, c.cause); took > 2*time.Second {
						t.Errorf("told after %v", took)
					}
					var lost *holdfast.LostError
					if errors.As(lk.Check(), &lost); lost.Kind != holdfast.KindTree || lost.Name != "billing/eu/7" {
						t.Errorf("the loss names %s %s", lost.Kind, lost.Name)
					}
					if ops.records[0].Kind != holdfast.KindTree || ops.records[0].Name != path {
						t.Errorf("record: %+v", ops.records[0])
					}
					if name == "kicked" {
						_ = lk.Unlock(t.Context())
					}
					_ = mustLockTree(t, b, "billing").Unlock(t.Context()) // without Unlock too, once it is removed
					time.Sleep(2 * time.Second)                           // the poller of a sees that
					queuetest.NothingStands(t, srv)
				})
			})
		}
	}
}

// The entry of one name is removed while the set waits for another one. It gives up its places, and queues again.
func TestSetThatWaitsGivesWayToAnAdministrator(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		other := mustLock(t, b, "other")
		granted := make(chan *locker.SetLock, 1)
		lockLater(t, func(ctx context.Context) error {
			set, err := locker.NewSet(a, locker.Write("job"), locker.Write("other")).Lock(ctx)
			granted <- set
			return err
		})
		q, err := adm.Show(t.Context(), holdfast.KindLock, "job")
		if err != nil {
			t.Fatal(err)
		}
		shown, _ := q.Holder()
		ops := newAdministrator(srv, "ops")
		if err := ops.Remove(t.Context(), holdfast.KindLock, "job", shown.Token, "needed"); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		lk := mustLock(t, b, "job")
		if took := time.Since(begin); took > toldWithin+slack {
			t.Errorf("the next one holds after %v", took)
		}
		if err := other.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		if len(granted) > 0 {
			t.Error("the set holds beside the next one")
		}
		if err := lk.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		set := <-granted
		if h, err := set.Holder("job"); err != nil || set.Check() != nil || h.Token() <= shown.Token {
			t.Errorf("the set: %v, %v, holder %v", set.Check(), err, h)
		}
		if err := set.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestKindsThatTakeNoRequestAreRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		var bad *holdfast.ArgumentError
		for _, err := range adm.List(t.Context(), admin.LockAt, "") {
			if !errors.As(err, &bad) || bad.Argument != "kind" {
				t.Errorf("List of prefixes: %v", err)
			}
		}
		if err := adm.Kick(t.Context(), "tre", "job", 7, "deploy"); !errors.As(err, &bad) || bad.Argument != "kind" {
			t.Errorf("Kick of an unknown kind: %v", err)
		}
		lk := mustLock(t, a, "job")
		if err := adm.Kick(t.Context(), holdfast.KindTree, "job", lk.Token(), "deploy"); !errors.Is(err, admin.ErrNotHeld) {
			t.Errorf("Kick of the tree lock of that name: %v", err)
		}
	})
}
