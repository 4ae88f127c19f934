package sqlfence_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// lock acquires a lock with a session of its own.
func lock(t *testing.T, srv *etcdtest.Server, name string) *locker.Lock {
	t.Helper()
	sess, err := session.New(t.Context(), srv.Client(t), session.Options{})
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

// unaware is a lock that does not know about its loss.
type unaware struct{ *locker.Lock }

func (unaware) Check() error { return nil }

func TestTokensThatWentBackwardsAreDistinguishedFromAStaleHolder(t *testing.T) {
	srv := etcdtest.Start(t)
	d := newDatabase(t, kinds[0])
	g := d.guard(t, nil)
	present := lock(t, srv, "job")
	if err := g.Do(t.Context(), "r", present, d.write("r", present.Token(), "")); err != nil {
		t.Fatal(err)
	}

	// A mark from before a restore of etcd.
	const before = holdfast.Token(3<<48 | 1000)
	if err := g.Do(t.Context(), "r", before, d.write("r", before, "")); err != nil {
		t.Fatal(err)
	}
	err := g.Do(t.Context(), "r", present, neverCalled(t))
	below, ok := errors.AsType[*fencing.MarkError](err)
	if !ok || !errors.Is(err, sqlfence.ErrRewound) || !errors.Is(err, fencing.ErrStale) || below.Mark != before ||
		below.Claim.Token != present.Token() {
		t.Errorf("Do: %v", err)
	}
	if len(err.Error()) > 250 { // every refused write of every process logs it
		t.Errorf("%d bytes: %v", len(err.Error()), err)
	}
	for _, advice := range []string{"epoch to 4 or more", "BumpEpoch"} {
		if !strings.Contains(err.Error(), advice) {
			t.Errorf("the error does not say %q: %v", advice, err)
		}
	}

	// A mark that no epoch can reach.
	const beyond = holdfast.Token((3+fencing.MaxEpochStep)<<48 | 1)
	if err := g.Do(t.Context(), "r", beyond, d.write("r", beyond, "")); err != nil {
		t.Fatal(err)
	}
	err = g.Do(t.Context(), "r", present, neverCalled(t))
	if !errors.Is(err, sqlfence.ErrRewound) || strings.Contains(err.Error(), "BumpEpoch") ||
		!strings.Contains(err.Error(), "Reset the mark") {
		t.Errorf("Do: %v", err)
	}

	// A holder that does not know about its loss.
	if err := present.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = g.Do(t.Context(), "r", unaware{present}, neverCalled(t))
	if !errors.Is(err, fencing.ErrStale) || errors.Is(err, sqlfence.ErrRewound) {
		t.Errorf("Do: %v", err)
	}

	// A bare token, and a holder whose etcd does not answer.
	srv.Stop()
	for _, s := range []fencing.Source{holdfast.Token(5), unaware{present}} {
		err := g.Do(t.Context(), "r", s, neverCalled(t))
		if !errors.Is(err, fencing.ErrStale) || errors.Is(err, sqlfence.ErrRewound) {
			t.Errorf("Do: %v", err)
		}
	}
	if err := srv.Restart(); err != nil { // so that the session can be closed
		t.Fatal(err)
	}
}
