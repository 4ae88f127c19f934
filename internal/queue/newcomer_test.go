package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/holdtest"
	"github.com/holdfast-go/holdfast/internal/queue"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// Of a holder whose lease was revoked before it queued, a client sees nothing. But what it waits for has queued before
// the revocation, delays for that, and may neither hold nor leave earlier.
func TestNewcomerIsHeldBackByAWaiterOfARevokedHolder(t *testing.T) {
	writer := func(p *holdtest.Process) queue.Set { return queue.Set{p.Queue("x")} }
	reader := func(p *holdtest.Process) queue.Set { return queue.Set{p.Readers("x")} }
	permit := func(p *holdtest.Process) queue.Set { return queue.Set{p.Permits(1, 1)} }
	both := func(p *holdtest.Process) queue.Set { return p.Set("x", "y") }
	inPermits := func(t *testing.T, srv *etcdfake.Server, prefix string) *kit.Peer {
		return kit.JoinPermit(t, srv, prefix, 1)
	}
	type join = func(t *testing.T, srv *etcdfake.Server, prefix string) *kit.Peer
	for name, c := range map[string]struct {
		prefix           string
		revoked          join
		waiter, newcomer func(p *holdtest.Process) queue.Set
	}{
		"writers":                       {holdtest.EntriesX, kit.Join, writer, writer},
		"a reader, a writer, a reader":  {holdtest.EntriesX, kit.JoinReader, writer, reader},
		"a writer, a reader, a writer":  {holdtest.EntriesX, kit.Join, reader, writer},
		"a writer, and sets behind it":  {holdtest.EntriesX, kit.Join, both, both},
		"holders of the only permit":    {kit.Permits("x"), inPermits, permit, permit},
		"a writer, a set, and a writer": {holdtest.EntriesX, kit.Join, both, writer},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
				revoked := c.revoked(t, srv, c.prefix)
				waiter := acquireSetLater(kit.Within(t, time.Minute), c.waiter(a))
				kit.Queued(t, srv, c.prefix, 2)
				revoked.Revoke()
				began := time.Now()
				newcomer := acquireSetLater(kit.Within(t, time.Minute), c.newcomer(b))
				for _, done := range []<-chan setResult{waiter, newcomer} {
					r := <-done
					if r.err != nil {
						t.Fatal(r.err)
					}
					if held := time.Since(began); held < kit.LockDelay || held > kit.LockDelay+2*kit.Prompt {
						t.Errorf("held %v after the revocation", held)
					}
					holdtest.MustRelease(t, r.holds[0])
				}
			})
		})
	}
}

// A permit that waits holds a newcomer back only while it stands and there is no room for both.
func TestNewcomerAtASemaphoreIsHeldBackWhileThereIsNoRoom(t *testing.T) {
	for name, c := range map[string]struct {
		then     func(beside *kit.Peer, giveUp context.CancelFunc)
		heldBack bool
	}{
		"there is room for one":       {func(*kit.Peer, context.CancelFunc) {}, true},
		"there is room for both":      {func(beside *kit.Peer, _ context.CancelFunc) { beside.Release() }, false},
		"the one that waits gives up": {func(_ *kit.Peer, giveUp context.CancelFunc) { giveUp() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				kit.SetLimit(t, srv, 2, 2)
				revoked, beside := kit.JoinPermit(t, srv, kit.Permits("x"), 1), kit.JoinPermit(t, srv, kit.Permits("x"), 1)
				ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
				defer giveUp()
				waiter := holdtest.AcquireLater(ctx, holdtest.Start(t, srv).Permits(2, 1))
				kit.Queued(t, srv, kit.Permits("x"), 3)
				revoked.Revoke()
				began := time.Now()
				newcomer := holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Permits(2, 1))
				kit.Queued(t, srv, kit.Permits("x"), 3)
				c.then(beside, giveUp)
				go func() { // the waiter releases, or has given up
					if r := <-waiter; r.Err == nil {
						_ = r.H.Release(context.Background())
					}
				}()
				r := <-newcomer
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				if held := r.At.Sub(began); (held >= kit.LockDelay) != c.heldBack {
					t.Errorf("the newcomer held %v after the revocation", held)
				}
				holdtest.MustRelease(t, r.H)
			})
		})
	}
}
