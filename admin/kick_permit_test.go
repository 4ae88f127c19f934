package admin_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

func mustAcquire(t *testing.T, sess *session.Session, limit, weight int) *locker.Permit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := locker.NewSemaphore(sess, "pool", limit).Acquire(ctx, weight)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// permitOf returns the name of a permit for Kick and Remove, as Show tells it.
func permitOf(t *testing.T, ops *administrator, p *locker.Permit) holdfast.Token {
	t.Helper()
	q, err := ops.Show(t.Context(), holdfast.KindSemaphore, "pool")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range q.Entries {
		if e.Key == p.Key() {
			return holdfast.Token(e.Revision)
		}
	}
	t.Fatalf("%s does not stand", p.Key())
	return 0
}

// permitEnds waits until a permit has ended for a reason, and returns how long that took.
func permitEnds(t *testing.T, p *locker.Permit, cause holdfast.Cause) time.Duration {
	t.Helper()
	begin := time.Now()
	select {
	case <-p.Done():
	case <-time.After(time.Minute):
		t.Fatalf("the hold does not end: %v", p.Check())
	}
	if lost := (*holdfast.LostError)(nil); !errors.As(p.Check(), &lost) || lost.Cause != cause {
		t.Fatalf("Check: %v, want cause %v", p.Check(), cause)
	}
	return time.Since(begin)
}

// acquireLater has a session ask for a permit of weight 1 of two. former must have been told when it holds.
func acquireLater(t *testing.T, sess *session.Session, former *locker.Permit) <-chan *locker.Permit {
	t.Helper()
	granted := make(chan *locker.Permit, 1)
	go func() {
		p := mustAcquire(t, sess, 2, 1)
		if former.Check() == nil {
			t.Error("the next one holds before the former one was told")
		}
		granted <- p
	}()
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
	return granted
}

// One of two permits is asked for, also one that was given after a wait. The other one is not touched, and who waits
// holds once it is released.
func TestKickedPermitIsToldAndStaysUntilItsRelease(t *testing.T) {
	for name, waited := range map[string]bool{"held at once": false, "held after a wait": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
				a, _ := newSession(t, srv, "a")
				b, _ := newSession(t, srv, "b")
				c, _ := newSession(t, srv, "c")
				ops := newAdministrator(srv, "ops")
				other := mustAcquire(t, a, 2, 1)
				if waited {
					full := mustAcquire(t, a, 2, 1)
					time.AfterFunc(time.Second, func() { _ = full.Release(t.Context()) })
				}
				kicked := mustAcquire(t, b, 2, 1)
				granted := acquireLater(t, c, kicked)
				name := permitOf(t, ops, kicked)
				if err := ops.Kick(t.Context(), holdfast.KindSemaphore, "pool", name, "deploy"); err != nil {
					t.Fatal(err)
				}
				if took := permitEnds(t, kicked, holdfast.CauseKicked); took > 2*time.Second {
					t.Errorf("told after %v", took)
				}
				time.Sleep(10 * time.Second)
				q, err := ops.Show(t.Context(), holdfast.KindSemaphore, "pool")
				if err != nil || len(q.Holders()) != 2 || q.Entries[1].Notice.Reason != "deploy" || other.Check() != nil {
					t.Errorf("until the release: %+v, %v; the other one: %v", q, err, other.Check())
				}
				if lost := (*holdfast.LostError)(nil); !errors.As(kicked.Release(t.Context()), &lost) {
					t.Error("Release does not tell the loss")
				}
				time.Sleep(slack)
				select {
				case p := <-granted:
					_ = p.Release(t.Context())
				default:
					t.Error("who waits is not told of the release")
				}
				_ = other.Release(t.Context())
				if len(ops.records) != 1 {
					t.Fatalf("records: %+v", ops.records)
				}
				if r := ops.records[0]; r.Event != audit.Kicked || r.Kind != holdfast.KindSemaphore || r.Token != 0 ||
					r.Key != kicked.Key() ||
					!strings.Contains(r.Holder, `permit of weight 1, owner "b"`) || r.Err != nil {
					t.Errorf("record %+v", r)
				}
			})
		})
	}
}

func TestRemovedPermitIsToldBeforeTheNextOneHolds(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		ops := newAdministrator(srv, "ops")
		stuck := mustAcquire(t, a, 2, 2)
		granted := acquireLater(t, b, stuck)
		begin := time.Now()
		err := ops.Remove(t.Context(), holdfast.KindSemaphore, "pool", permitOf(t, ops, stuck), "wedged")
		if err != nil {
			t.Fatal(err)
		}
		if took := permitEnds(t, stuck, holdfast.CauseRemoved); took > 2*time.Second {
			t.Errorf("told after %v", took)
		}
		p := <-granted
		if took := time.Since(begin); took < toldWithin || took > toldWithin+slack {
			t.Errorf("the next one follows after %v, want %v", took, toldWithin)
		}
		_ = p.Release(t.Context())
	})
}

// A limit that was lowered leaves more permits held than it allows. Those can be kicked, too; one that waits cannot.
func TestPermitThatDoesNotHoldIsNotKicked(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, _ := newSession(t, srv, "a")
		ops := newAdministrator(srv, "ops")
		held := []*locker.Permit{mustAcquire(t, a, 2, 1), mustAcquire(t, a, 2, 1)}
		ctx, giveUp := context.WithCancel(t.Context())
		defer giveUp()
		go func() { _, _ = locker.NewSemaphore(a, "pool", 2).Acquire(ctx, 1) }()
		time.Sleep(3 * time.Second)
		if err := locker.NewSemaphore(a, "pool", 2).Resize(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		q, err := ops.Show(t.Context(), holdfast.KindSemaphore, "pool")
		if err != nil || len(q.Entries) != 3 {
			t.Fatalf("%+v, %v", q, err)
		}
		waits, none := holdfast.Token(q.Entries[2].Revision), holdfast.Token(q.Entries[2].Revision+1)
		for name, want := range map[holdfast.Token]error{waits: admin.ErrWaits, none: admin.ErrNotHeld} {
			err := ops.Kick(t.Context(), holdfast.KindSemaphore, "pool", name, "deploy")
			failed := (*admin.HolderError)(nil)
			if !errors.Is(err, want) || !errors.As(err, &failed) || failed.Holder.Key != held[0].Key() ||
				!strings.Contains(err.Error(), "permit "+name.String()+": ") {
				t.Errorf("%v: %v, want %v", name, err, want)
			}
		}
		if len(ops.records) != 0 {
			t.Errorf("records: %+v", ops.records)
		}
		err = ops.Kick(t.Context(), holdfast.KindSemaphore, "pool", permitOf(t, ops, held[1]), "deploy")
		if err != nil {
			t.Fatal(err)
		}
		permitEnds(t, held[1], holdfast.CauseKicked)
		giveUp()
		for _, p := range held {
			_ = p.Release(t.Context())
		}
	})
}
