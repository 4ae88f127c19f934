package locker_test

import (
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// etcd's own Mutex waits for every entry that was created before its own, so MinHold
// keeps the name from it, too, also after the session has closed.
func TestMinHoldKeepsANameFromEtcdsOwnMutex(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	const minHold = 2 * time.Second
	sess := open(t, srv.Client(t), session.Options{})
	began := time.Now()
	lk := mustLock(t, locker.NewMutexAt(sess, "job").With(locker.Options{MinHold: minHold}))
	theirs, err := concurrency.NewSession(cli)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = theirs.Close() })
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if err := sess.Close(deadline(t)); err != nil {
		t.Fatal(err)
	}
	mu := concurrency.NewMutex(theirs, "job")
	if err := mu.TryLock(deadline(t)); err != concurrency.ErrLocked {
		t.Errorf("TryLock: %v", err)
	}
	if err := mu.Lock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if taken := time.Since(began); taken < minHold {
		t.Errorf("the name was taken for %v", taken)
	}
}
