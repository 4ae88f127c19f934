//go:build unix

package mixedfleet

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/compat/mixedfleet/worker"
)

// An older version has no readers: its lock waits for all that are ahead of it, and readers wait for it.
func TestReadersAndAnOlderVersionExcludeEachOther(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	writer := start(t, old, srv) // before the deadline: the first one is built, which may take minutes
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sess, err := session.New(ctx, srv.Client(t), session.Options{TTL: lasting})
	if err != nil {
		t.Fatal(err)
	}
	defer sess.Close(context.Background())
	rw := locker.NewRWMutex(sess, "x")
	var readers []*locker.ReadLock
	for range 2 {
		lk, err := rw.RLock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, lk)
	}
	writer.tell(worker.Order{What: worker.TryLock, Name: "x"})
	if ev := writer.reply(worker.TryLock); ev.Err == "" {
		t.Error("a writer of an older version holds beside readers")
	}
	writer.tell(worker.Order{What: worker.Lock, Name: "x"})
	srv.WaitForKeys(t, entries("lock", "x"), 3)
	if _, err := rw.TryRLock(ctx); !errors.Is(err, locker.ErrLocked) {
		t.Errorf("TryRLock while the older version waits: %v", err)
	}
	held := writer.later(worker.Lock)
	for _, lk := range readers { // the oldest first, so that the writer is behind the younger
		select {
		case <-held:
			t.Fatal("a writer of an older version does not wait for all readers")
		default:
		}
		if err := lk.Unlock(ctx); err != nil {
			t.Error(err)
		}
	}
	if r := <-held; r.err != nil || r.Err != "" {
		t.Fatalf("the older version: %+v", r)
	}
	if _, err := rw.TryRLock(ctx); !errors.Is(err, locker.ErrLocked) {
		t.Errorf("TryRLock while the older version holds: %v", err)
	}
	writer.do(worker.Order{What: worker.Unlock})
	lk, err := rw.RLock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := lk.Unlock(ctx); err != nil {
		t.Error(err)
	}
}
