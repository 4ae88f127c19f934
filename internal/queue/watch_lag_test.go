package queue_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// A watch on a member that lags tells what happened before it was created: how an earlier entry went, whose key the
// entry ahead has again. By that no waiter holds.
func TestWaiterIsNotToldOfAnEarlierEntryAtTheKeyAhead(t *testing.T) {
	for lagging := range 3 {
		for name, of := range map[string]func(p *holdtest.Process) *queue.Queue{
			"lock":   func(p *holdtest.Process) *queue.Queue { return p.Queue("x") },
			"permit": func(p *holdtest.Process) *queue.Queue { return p.Permits(1, 1) },
		} {
			withMembers(t, name, func(t *testing.T, srv *etcdfake.Server) {
				a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
				holdtest.MustRelease(t, holdtest.MustAcquire(t, of(a)))
				first := holdtest.MustAcquire(t, of(a))
				key := first.Key()
				srv.Members()[lagging].Lag(2 * time.Second)
				holdtest.MustRelease(t, first)
				again := holdtest.MustAcquire(t, of(a))
				if again.Key() != key {
					t.Fatalf("the key is %s, want %s again", again.Key(), key)
				}
				waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), of(b))
				time.Sleep(5 * time.Second)
				stillWaits(t, waiter)
				holdtest.MustRelease(t, again)
				releaseNext(t, waiter)
			})
		}
	}
}

func releaseNext(t *testing.T, waiter <-chan holdtest.Result) {
	t.Helper()
	r := <-waiter
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	holdtest.MustRelease(t, r.H)
}

// withMembers runs a test in virtual time with a cluster of three members.
func withMembers(t *testing.T, name string, f func(t *testing.T, srv *etcdfake.Server)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			srv := etcdfake.New(&etcdfake.Options{Members: 3})
			t.Cleanup(srv.Close)
			f(t, srv)
		})
	})
}
