// Package robustness tests the packages together, under faults of real processes,
// clusters and networks. Most tests compare what holders observe with the history of
// etcd's store.
package robustness

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/tests/internal/testkit"
)

var (
	open        = testkit.Open
	deadline    = testkit.Deadline
	soon        = testkit.Within
	await       = testkit.Eventually
	mustSucceed = testkit.MustSucceed
)

// throughout returns a context for a call that begins early in a test and ends late in it.
func throughout(t testing.TB) context.Context { return soon(t, 5*time.Minute) }

// settled waits until the session on a link sends nothing but renewals, and returns
// the RPCs so far. The last request that New causes is a read of the session key.
func settled(t *testing.T, link *etcdtest.Link) etcdtest.Counts {
	t.Helper()
	if err := link.Wait(deadline(t), "Range", 1); err != nil {
		t.Fatal(err)
	}
	return link.Count()
}

// joinSignal is a context that closes joined at the first call of Done. Lock calls
// Done only after the goroutine has joined the queue of its session.
type joinSignal struct {
	context.Context
	once   sync.Once
	joined chan struct{}
}

func (j *joinSignal) Done() <-chan struct{} {
	j.once.Do(func() { close(j.joined) })
	return j.Context.Done()
}
