// Package etcd_test runs packages against one member of a real etcd, for what depends on the server: what a page costs,
// compaction, permissions, members that hang, namespaces, and etcd's own clients.
package etcd_test

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/testkit"
)

var deadline = testkit.Deadline

func TestMain(m *testing.M) { testkit.Main(m) }

func open(t testing.TB, cli *clientv3.Client, owner string) *session.Session {
	t.Helper()
	return testkit.Open(t, cli, session.Options{Owner: owner})
}

func mustLock(t testing.TB, mu *locker.Mutex) *locker.Lock {
	t.Helper()
	lk, err := mu.Lock(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	return lk
}

func mustUnlock(t testing.TB, lk *locker.Lock) {
	t.Helper()
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Error(err)
	}
}
