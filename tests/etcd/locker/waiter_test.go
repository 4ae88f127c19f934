package locker_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// waiting is a held lock and a waiter that watches it.
type waiting struct {
	srv  *etcdtest.Server
	held *locker.Lock
	link *etcdtest.Link // the waiter's
	mu   *locker.Mutex
	done <-chan result
}

func newWaiting(t *testing.T, o session.Options) *waiting {
	t.Helper()
	o.TTL = 600 * time.Second // no renewal during the test
	srv := etcdtest.Start(t)
	w := &waiting{srv: srv, held: mustLock(t, locker.NewMutex(open(t, srv.Client(t), session.Options{TTL: o.TTL}),
		"x")), link: srv.Link(t)}
	w.mu = locker.NewMutex(open(t, w.link.Client(), o), "x")
	w.done = lockLater(deadline(t), w.mu)
	// The waiter reads once after it has set its watch.
	if err := w.link.Wait(deadline(t), "Txn", 2); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *waiting) release(t *testing.T) {
	t.Helper()
	if err := w.held.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
}

// writeOther puts an unrelated key n times.
func (w *waiting) writeOther(t *testing.T, n int) {
	t.Helper()
	cli := w.srv.Client(t)
	for range n {
		if _, err := cli.Put(deadline(t), "y", ""); err != nil {
			t.Fatal(err)
		}
	}
}

// acquires asserts that the waiter acquires the lock with a larger token. How few requests it needs for that is counted
// in virtual time, by TestWaiterWhoseWatchFailsMissesNoRelease of internal/queue.
func (w *waiting) acquires(t *testing.T) {
	t.Helper()
	r := <-w.done
	if r.err != nil {
		t.Fatal(r.err)
	}
	if r.lk.Token() <= w.held.Token() {
		t.Errorf("token %v after %v", r.lk.Token(), w.held.Token())
	}
}

// Scenario 34: while the waiter is disconnected, etcd compacts the revision at which its watch would resume.
func TestWaiterAcquiresAfterItsWatchIsCompacted(t *testing.T) {
	t.Parallel()
	for name, releasedBefore := range map[string]bool{"released before": true, "released afterwards": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWaiting(t, session.Options{})
			// The waiter's watch fails in the same way as this one.
			witness := w.link.Client().Watch(deadline(t), w.held.Key(), clientv3.WithCreatedNotify())
			<-witness
			before := w.link.Count()
			w.link.Cut()
			if releasedBefore {
				w.release(t)
			}
			w.writeOther(t, 3) // revisions to compact
			w.srv.Compact(t)
			w.link.Heal()
			var last clientv3.WatchResponse
			for last = range witness {
			}
			if last.CompactRevision == 0 {
				t.Errorf("the watch ended with %v, want a compaction error: this test no longer tests that", last.Err())
			}
			if !releasedBefore {
				// The waiter reads again after it has set a new watch.
				if err := w.link.Wait(deadline(t), "Txn", before["Txn"]+1); err != nil {
					t.Fatal(err)
				}
				w.writeOther(t, 100) // gives a retry loop time to spin
				select {
				case r := <-w.done:
					t.Fatalf("%+v while another holds", r)
				default:
				}
				w.release(t)
			}
			w.acquires(t)
		})
	}
}

// Scenario 35: the watch event is delayed, or the watch stream breaks.
func TestWaiterAcquiresAfterItsWatchFails(t *testing.T) {
	t.Parallel()
	t.Run("the event is delayed", func(t *testing.T) {
		t.Parallel()
		w := newWaiting(t, session.Options{})
		w.link.Stall("Watch")
		w.release(t)
		w.link.Heal()
		w.acquires(t)
	})
	t.Run("the stream breaks and the event is lost", func(t *testing.T) {
		t.Parallel()
		w := newWaiting(t, session.Options{})
		w.link.LoseReply("Watch", 1, codes.Unavailable)
		w.release(t)
		w.acquires(t)
	})
	t.Run("etcd restarts", func(t *testing.T) {
		t.Parallel()
		w := newWaiting(t, session.Options{})
		w.srv.Stop()
		if err := w.srv.Restart(); err != nil {
			t.Fatal(err)
		}
		w.release(t)
		w.acquires(t)
	})
}

// A member that hangs does not serve the watch, but other members answer reads: the waiter polls.
func TestWaiterAcquiresWithoutAWatch(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	held := mustLock(t, locker.NewMutex(open(t, srv.Client(t), session.Options{}), "x"))
	sess := open(t, link.Client(), session.Options{TTL: 600 * time.Second})
	link.Stall("Watch")
	before := link.Count()
	done := lockLater(deadline(t), locker.NewMutex(sess, "x"))
	if err := link.Wait(deadline(t), "Watch", 1); err != nil {
		t.Fatal(err)
	}
	// The waiter reads after each failure to set the watch. The lock is still held.
	if err := link.Wait(deadline(t), "Txn", before["Txn"]+3); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-done:
		t.Fatalf("%+v while another holds", r)
	default:
	}
	if err := held.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.err != nil || r.lk.Token() <= held.Token() {
		t.Errorf("%+v", r)
	}
	link.Heal()
}
