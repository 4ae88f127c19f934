package locker_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// keysEver counts the entries that a lock has ever had, by key.
func keysEver(t *testing.T, srv *etcdtest.Server, name string) map[string]int {
	t.Helper()
	keys := make(map[string]int)
	for _, iv := range intervals(t, srv, name) {
		keys[iv.key]++
	}
	return keys
}

// etcd keeps deleted keys until compaction, and every read of the prefix iterates over them. So an acquisition must not
// use a new key each time.
func TestRepeatedLocksReuseOneKey(t *testing.T) {
	t.Parallel()
	srv, link, sess := overLink(t, session.Options{})
	mu := locker.NewMutex(sess, "x")
	before := link.Count()
	const rounds = 20
	for range rounds {
		if err := mustLock(t, mu).Unlock(deadline(t)); err != nil {
			t.Fatal(err)
		}
	}
	// After a put that was sent again, because the machine is busy, the next lock has another key.
	again := link.Count().Since(before)["Txn"] - 2*rounds
	if keys := keysEver(t, srv, "x"); len(keys) > 1+again {
		t.Errorf("%d keys for %d consecutive locks: %v", len(keys), rounds, keys)
	}
}

func TestHandOffsWithinASessionReuseTwoKeys(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	mu := locker.NewMutex(open(t, srv.Client(t), session.Options{}), "x")
	lk := mustLock(t, mu)
	const rounds = 20
	for range rounds {
		joined := &joinSignal{Context: deadline(t), joined: make(chan struct{})}
		next := lockLater(joined, mu)
		<-joined.joined
		if err := lk.Unlock(deadline(t)); err != nil {
			t.Fatal(err)
		}
		r := <-next
		if r.err != nil {
			t.Fatal(r.err)
		}
		lk = r.lk
	}
	if keys := keysEver(t, srv, "x"); len(keys) != 2 {
		t.Errorf("%d keys for %d hand-overs: %v", len(keys), rounds, keys)
	}
}

// Until the session key is rewritten, the unanswered request may still put its entry. An attempt that reused the key
// would take that entry for its own.
func TestKeyOfAnUnansweredAcquireIsNotReused(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	mu := locker.NewMutex(open(t, link.Client(), session.Options{TTL: 600e9}), "x")
	link.LoseReply("Txn", 1, codes.Unavailable)
	if err := mustLock(t, mu).Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	mustLock(t, mu)
	if keys := keysEver(t, srv, "x"); len(keys) != 2 {
		t.Errorf("keys %v, want two", keys)
	}
}

func TestConcurrentLocksHaveDifferentIdentifiers(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{})
	if err := mustLock(t, locker.NewMutex(sess, "x")).Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	// The identifier of the released lock is reused once.
	a, b := mustLock(t, locker.NewMutex(sess, "x")), mustLock(t, locker.NewMutex(sess, "y"))
	if a.Key()[len("holdfast/lock/x/@/"):] == b.Key()[len("holdfast/lock/y/@/"):] {
		t.Errorf("%s and %s share an identifier", a.Key(), b.Key())
	}
}
