package locker_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
)

// keysEver counts the entries that lock x ever had, by their keys.
func keysEver(srv *etcdfake.Server) map[string]int {
	keys := make(map[string]int)
	for _, c := range srv.History(kit.Entries("x")) {
		if c.Deleted {
			keys[string(c.Kv.Key)]++
		}
	}
	return keys
}

// etcd keeps deleted keys until compaction, and every read of the prefix iterates over them. So an acquisition must not
// use a new key each time.
func TestRepeatedLocksReuseOneKey(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		mu := locker.NewMutex(kit.Start(t, srv).Sess, "x")
		const rounds = 20
		for range rounds {
			mustUnlock(t, mustLock(t, mu))
		}
		if keys := keysEver(srv); len(keys) != 1 {
			t.Errorf("%d keys for %d consecutive locks: %v", len(keys), rounds, keys)
		}
	})
}

func TestHandOffsWithinASessionReuseTwoKeys(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		mu := locker.NewMutex(kit.Start(t, srv).Sess, "x")
		lk := mustLock(t, mu)
		const rounds = 20
		for range rounds {
			next := lockLater(t.Context(), mu)
			synctest.Wait()
			mustUnlock(t, lk)
			r := <-next
			if r.err != nil {
				t.Fatal(r.err)
			}
			lk = r.lk
		}
		mustUnlock(t, lk)
		if keys := keysEver(srv); len(keys) != 2 {
			t.Errorf("%d keys for %d hand-overs: %v", len(keys), rounds, keys)
		}
	})
}

// Until the session key is rewritten, the unanswered request may still put its entry. An attempt that reused the key
// would take that entry for its own.
func TestKeyOfAnUnansweredAcquireIsNotReused(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		mu := locker.NewMutex(p.Sess, "x")
		p.PlanOne("enqueue", etcdfake.Fate{LoseReply: true})
		mustUnlock(t, mustLock(t, mu))
		mustUnlock(t, mustLock(t, mu))
		if keys := keysEver(srv); len(keys) != 2 {
			t.Errorf("keys %v, want two", keys)
		}
	})
}

func TestConcurrentLocksHaveDifferentIdentifiers(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		sess := kit.Start(t, srv).Sess
		mustUnlock(t, mustLock(t, locker.NewMutex(sess, "x")))
		// The identifier of the released lock is reused once.
		a, b := mustLock(t, locker.NewMutex(sess, "x")), mustLock(t, locker.NewMutex(sess, "y"))
		if strings.TrimPrefix(a.Key(), kit.Entries("x")) == strings.TrimPrefix(b.Key(), kit.Entries("y")) {
			t.Errorf("%s and %s share an identifier", a.Key(), b.Key())
		}
		mustUnlock(t, a)
		mustUnlock(t, b)
	})
}
