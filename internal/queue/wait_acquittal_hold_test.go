package queue_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// A waiter whose lease ends, or whose entry is deleted, while something that excludes it stands ahead of it has never
// held. So it delays no other one.
func TestWaiterThatDiedInTheMiddleCostsNoDelay(t *testing.T) {
	type join = func(t *testing.T, srv *etcdfake.Server, prefix string) *kit.Peer
	for name, c := range map[string]struct {
		holder, middle join
		last           string
	}{
		"a writer behind a writer": {kit.Join, kit.Join, "x"},
		"a reader behind a writer": {kit.Join, kit.JoinReader, "x"},
		"a writer behind a reader": {kit.JoinReader, kit.Join, "x"},
		"seen by a reader":         {kit.Join, kit.Join, "!x"},
	} {
		for how, die := range ends() {
			t.Run(name+", "+how, func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					holder, middle := c.holder(t, srv, holdtest.EntriesX), c.middle(t, srv, holdtest.EntriesX)
					p := holdtest.Start(t, srv)
					done := acquireSetLater(kit.Within(t, time.Minute), p.Set(c.last))
					kit.Queued(t, srv, holdtest.EntriesX, 3)
					die(middle)
					time.Sleep(kit.Prompt)
					released := time.Now()
					holder.Release()
					r := <-done
					if took := time.Since(released); r.err != nil || took > kit.Prompt {
						t.Fatalf("held after %v: %v", took, r.err)
					}
					holdtest.MustRelease(t, r.holds[0])
					kit.NothingStands(t, srv)
				})
			})
		}
	}
}

// Readers hold together, so that another one stood ahead of it says nothing of a reader that is gone.
func TestReaderThatDiedBesideAnotherIsDelayedFor(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		beside, a := kit.JoinReader(t, srv, holdtest.EntriesX), deaf(t, srv)
		reader := holdtest.MustAcquire(t, a.Readers("x"))
		writer := holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 3)
		srv.Revoke(reader.Lease())
		revoked := time.Now()
		time.Sleep(kit.Prompt / 2)
		beside.Release()
		r := <-writer
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if took := r.At.Sub(revoked); took < kit.LockDelay || reader.Check() == nil {
			t.Errorf("the writer holds %v after the revocation; the reader: %v", took, reader.Check())
		}
		holdtest.MustRelease(t, r.H)
	})
}

// The two entries of a lock that may be downgraded have one revision. Neither says of the other that it has not held.
func TestLockThatMayBeDowngradedIsDelayedFor(t *testing.T) {
	for name, last := range map[string]string{"a writer comes": "x", "a reader comes": "!x"} {
		for _, acquire := range []acquirer{holdtest.AcquireSet, holdtest.TryAcquireSet} {
			t.Run(name, func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					a, b := deaf(t, srv), holdtest.Start(t, srv)
					h := holdtest.MustAcquireSet(t, a.Queue("x").Downgradable(), hold.Request{})[0]
					time.Sleep(time.Second)
					srv.Revoke(h.Lease())
					revoked := time.Now()
					holds, err := acquire(kit.Within(t, time.Minute), b.Set(last), hold.Request{})
					if err != nil {
						t.Fatal(err)
					}
					if took := time.Since(revoked); took < kit.LockDelay || took > kit.LockDelay+kit.Prompt || h.Check() == nil {
						t.Errorf("held %v after the revocation; the former holder: %v", took, h.Check())
					}
					holdtest.MustRelease(t, holds[0])
				})
			})
		}
	}
}
