package locker_test

import (
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/locker"
)

// noticed waits until a lock has ended and returns its loss, and how long it took.
func noticed(t *testing.T, lk *locker.Lock) (lost *holdfast.LostError, after time.Duration) {
	t.Helper()
	begin := time.Now()
	select {
	case <-lk.Done():
	case <-time.After(time.Minute):
		t.Fatal("never noticed")
	}
	if !errors.As(lk.Check(), &lost) {
		t.Fatalf("Check: %v", lk.Check())
	}
	return lost, time.Since(begin)
}

// Scenario 22. An administrator deletes the entry of a holder and puts the same
// key again, lease and all: that is another entry, and the lock is lost.
func TestEntryDeletedAndPutAgainIsALoss(t *testing.T) {
	for name, again := range map[string]func(t *testing.T, p *process, lk *locker.Lock){
		"by somebody else": func(_ *testing.T, _ *process, _ *locker.Lock) {},
		"with its lease": func(t *testing.T, p *process, lk *locker.Lock) {
			if _, err := p.link.Client().Put(t.Context(), lk.Key(), "again", clientv3.WithLease(lk.Lease())); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				a := start(t, srv)
				lk := mustLock(t, locker.NewMutex(a.sess, "x"))
				time.Sleep(3 * time.Second)
				srv.Delete(lk.Key())
				srv.Put(lk.Key(), "again")
				again(t, a, lk)
				if _, err := fencing.NewFencedWriter(lk).Put(t.Context(), "data", "late"); !errors.Is(err, fencing.ErrStale) && !errors.Is(err, holdfast.ErrLost) {
					t.Errorf("guarded write: %v", err)
				}
				if lost, after := noticed(t, lk); lost.Cause != holdfast.CauseEntryDeleted || after > 2*time.Second {
					t.Errorf("after %v: %v", after, lost)
				}
			})
		})
	}
}

// Scenario 23. A lease is revoked: every handle on it is lost, for that reason,
// also those whose entries were seen gone before their lease was, and none on
// another session.
func TestRevokedLeaseEndsEveryLockOnIt(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := start(t, srv), start(t, srv)
		var locks []*locker.Lock
		for _, name := range []string{"x", "y", "z"} {
			locks = append(locks, mustLock(t, locker.NewMutex(a.sess, name)))
		}
		theirs := mustLock(t, locker.NewMutex(b.sess, "theirs"))
		time.Sleep(3 * time.Second)
		revoked := time.Now()
		srv.Revoke(a.sess.Lease())
		for _, lk := range locks {
			if lost, _ := noticed(t, lk); lost.Cause != holdfast.CauseRevoked || lost.Name != lk.Name() || time.Since(revoked) > 2*time.Second {
				t.Errorf("%s after %v: %v", lk.Name(), time.Since(revoked), lost)
			}
		}
		if err := theirs.Check(); err != nil {
			t.Errorf("the other session's: %v", err)
		}
	})
}
