package sqlfence_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// lock acquires a lock on a session of its own.
func lock(t *testing.T, srv *etcdtest.Server, name string) *locker.Lock {
	t.Helper()
	sess, err := session.New(t.Context(), srv.Client(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := sess.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	lk, err := locker.NewMutex(sess, name).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lk
}

// forgetful is a lock that does not know that its entry is gone.
type forgetful struct{ *locker.Lock }

func (forgetful) Check() error { return nil }

func TestTokensThatGoBackwardsAreToldFromAStaleHolder(t *testing.T) {
	srv := etcdtest.Start(t)
	d := newDatabase(t, kinds[0])
	g := d.guard(t, nil)
	present := lock(t, srv, "job")
	if err := g.Do(t.Context(), "r", present, d.write("r", present.Token(), "")); err != nil {
		t.Fatal(err)
	}

	// The mark of a time that etcd, restored, knows nothing of.
	const before = fencing.Token(3<<48 | 1000)
	if err := g.Do(t.Context(), "r", before, d.write("r", before, "")); err != nil {
		t.Fatal(err)
	}
	err := g.Do(t.Context(), "r", present, neverCalled(t))
	e, ok := errors.AsType[*sqlfence.RewoundError](err)
	if !ok || !errors.Is(err, sqlfence.ErrRewound) || !errors.Is(err, fencing.ErrStale) || e.Below.Mark != before || e.Below.Claim.Token != present.Token() {
		t.Errorf("Do: %v", err)
	}
	if len(err.Error()) > 250 { // each write of each process says it
		t.Errorf("%d bytes: %v", len(err.Error()), err)
	}
	for _, advice := range []string{"epoch to 4 or more", "BumpEpoch"} {
		if !strings.Contains(err.Error(), advice) {
			t.Errorf("the error does not say %q: %v", advice, err)
		}
	}

	// One that merely believes to be the present holder.
	if err := present.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = g.Do(t.Context(), "r", forgetful{present}, neverCalled(t))
	if !errors.Is(err, fencing.ErrStale) || errors.Is(err, sqlfence.ErrRewound) {
		t.Errorf("Do: %v", err)
	}

	// A token from elsewhere, and a holder whose etcd does not answer.
	srv.Stop()
	for _, s := range []fencing.Source{fencing.Token(5), forgetful{present}} {
		err := g.Do(t.Context(), "r", s, neverCalled(t))
		if !errors.Is(err, fencing.ErrStale) || errors.Is(err, sqlfence.ErrRewound) {
			t.Errorf("Do: %v", err)
		}
	}
	if err := srv.Restart(); err != nil { // for the session to be closed
		t.Fatal(err)
	}
}
