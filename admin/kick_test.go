package admin_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
)

// The holder learns of it by the reads it makes anyway. The work of Do is joined, and then the name is free.
func TestKickedHolderEndsItsWorkAndReleases(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		sess, link := newSession(t, srv, "a")
		ops := newAdministrator(srv, "ops")
		var told time.Time
		var token holdfast.Token
		working, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- locker.NewMutex(sess, "job").Do(t.Context(), func(ctx context.Context, lk *locker.Lock) error {
				token = lk.Token()
				close(working)
				<-ctx.Done()
				told = time.Now()
				var kick *holdfast.KickError
				if err := context.Cause(ctx); !errors.As(err, &kick) || kick.By != "ops" || kick.Reason != "deploy" {
					t.Errorf("the context ends with %v", err)
				}
				again := locker.NewMutex(sess, "job")
				if _, err := again.Lock(context.WithoutCancel(ctx)); !errors.Is(err, holdfast.ErrReentrant) {
					t.Errorf("Lock within the work that was kicked: %v", err)
				}
				time.Sleep(10 * time.Second) // the work takes its time
				if n := len(srv.Keys(jobEntries)); n != 1 {
					t.Errorf("while the work runs there are %d entries", n)
				}
				return nil
			})
		}()
		<-working
		time.Sleep(5 * time.Second)
		asked := time.Now()
		before := link.Count()["Txn"]
		if err := ops.Kick(t.Context(), holdfast.KindLock, "job", token, "deploy"); err != nil {
			t.Fatal(err)
		}
		err := <-done
		var lost *holdfast.LostError
		if !errors.As(err, &lost) || lost.Cause != holdfast.CauseKicked || lost.Token != token {
			t.Errorf("Do: %v", err)
		}
		if after := told.Sub(asked); after > 2*time.Second {
			t.Errorf("told after %v", after)
		}
		if n := len(srv.Keys(jobEntries)); n != 0 {
			t.Errorf("after Do there are %d entries", n)
		}
		// Polls twice a second for at most 12 s, one read of the request, one removal.
		if n := link.Count()["Txn"] - before; n > 26 {
			t.Errorf("%d Txns", n)
		}
		if len(ops.records) != 1 {
			t.Fatalf("records: %+v", ops.records)
		}
		r := ops.records[0]
		if r.Event != audit.Kicked || r.Name != "job" || r.Token != token || r.By != "ops" || r.Detail != "deploy" ||
			!strings.Contains(r.Holder, `owner "a"`) || r.Err != nil || r.Lease != sess.Lease() {
			t.Errorf("record %+v", r)
		}
	})
}

// A caller of Lock is told by Done. The name is taken until Unlock, which returns the loss.
func TestKickedLockIsTakenUntilUnlock(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		ops := newAdministrator(srv, "ops")
		lk, _ := queueUp(t, "job", a, b)
		// A goroutine of the holder's session waits in line, too.
		local, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _, _ = locker.NewMutex(a, "job").Lock(local) }()
		time.Sleep(100 * time.Millisecond)
		if err := ops.Kick(t.Context(), holdfast.KindLock, "job", lk.Token(), "deploy"); err != nil {
			t.Fatal(err)
		}
		if took := ends(t, lk, holdfast.CauseKicked); took > 2*time.Second {
			t.Errorf("told after %v", took)
		}
		time.Sleep(time.Minute)
		q, err := ops.Show(t.Context(), holdfast.KindLock, "job")
		if h, _ := q.Holder(); err != nil || len(q.Entries) != 2 || h.Token != lk.Token() || h.Notice.Reason != "deploy" ||
			!strings.Contains(h.String(), `asked to let go by "ops": "deploy"`) {
			t.Errorf("a minute later: %v, %v", q.Entries, err)
		}
		for range 2 {
			var lost *holdfast.LostError
			if err := lk.Unlock(t.Context()); !errors.As(err, &lost) || lost.Cause != holdfast.CauseKicked {
				t.Errorf("Unlock: %v", err)
			}
			if kvs := srv.Keys(jobEntries); len(kvs) == 0 || kvs[0].CreateRevision == lk.Token().Revision() {
				t.Errorf("after Unlock: %v", kvs)
			}
		}
	})
}

// What is left to Unlock does not outlive its session, and does not keep Close waiting.
func TestKickedLockGoesWithItsSession(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, _ := newSession(t, srv, "a")
		ops := newAdministrator(srv, "ops")
		closed, revoked := mustLock(t, a, "job"), mustLock(t, a, "other")
		for name, lk := range map[string]*locker.Lock{"job": closed, "other": revoked} {
			if err := ops.Kick(t.Context(), holdfast.KindLock, name, lk.Token(), "deploy"); err != nil {
				t.Fatal(err)
			}
			ends(t, lk, holdfast.CauseKicked)
		}
		srv.Delete(revoked.Key()) // by hand: the session may use the name again
		time.Sleep(2 * time.Second)
		if lk := mustLock(t, a, "other"); lk.Unlock(t.Context()) != nil {
			t.Error("the name of a deleted entry stays blocked in its session")
		}
		begin := time.Now()
		if err := a.Close(t.Context()); err != nil || time.Since(begin) > time.Second {
			t.Errorf("Close: %v after %v", err, time.Since(begin))
		}
		if kvs := srv.Keys(jobEntries); len(kvs) != 0 {
			t.Errorf("after Close: %v", kvs)
		}
	})
}

func TestKickedLockOfALostLeaseEndsInGoodOrder(t *testing.T) {
	whileHeld(t, func(t *testing.T, j *job) {
		j.mustKick(t)
		ends(t, j.lk, holdfast.CauseKicked)
		j.srv.Revoke(j.a.Lease())
		time.Sleep(2 * time.Second)
		next := mustLock(t, j.a, "job") // under the next lease, although Unlock was not called
		ends(t, j.lk, holdfast.CauseKicked)
		if err := next.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A holder that is cut off learns of a request when it reaches etcd again. One that is dead never does.
func TestHolderThatIsCutOffLearnsOfAKickLater(t *testing.T) {
	whileHeld(t, func(t *testing.T, j *job) {
		time.Sleep(3 * time.Second)
		j.link.BlackHole()
		j.mustKick(t)
		time.Sleep(4 * time.Second)
		if err := j.lk.Check(); err != nil && !errors.Is(err, holdfast.ErrSuspended) {
			t.Errorf("while it is cut off: %v", err)
		}
		j.link.Heal()
		if took := ends(t, j.lk, holdfast.CauseKicked); took > 3*time.Second {
			t.Errorf("told %v after etcd could be reached again", took)
		}
		_ = j.lk.Unlock(t.Context())
	})
}
