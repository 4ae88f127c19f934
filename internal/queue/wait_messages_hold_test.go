package queue_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// What a waiter sends beyond what its session sends anyway: a look now and then, in case its watch misses something.
func TestSessionThatWaitsSendsLittleMoreThanOneThatHolds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		srv := etcdfake.New(etcdfake.Options{Members: 3})
		t.Cleanup(srv.Close)
		start := func() *holdtest.Process { return &holdtest.Process{Process: kit.StartQuiet(t, srv)} }
		holder, waiter := start(), start()
		lock := holdtest.MustAcquire(t, holder.Queue("x"))
		done := holdtest.AcquireLater(kit.Within(t, time.Hour), waiter.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		time.Sleep(10 * time.Second)
		sent := func(p *holdtest.Process) (all int) {
			for _, n := range p.Link.Count() {
				all += n
			}
			return all
		}
		const long = 30 * time.Minute
		holds, waits := sent(holder), sent(waiter)
		time.Sleep(long)
		holds, waits = sent(holder)-holds, sent(waiter)-waits
		if more := float64(waits-holds) / long.Seconds(); more > 0.05 || more < 0.02 {
			t.Errorf("a waiter sends %.3f messages a second more: %d, a holder %d", more, waits, holds)
		}
		holdtest.MustRelease(t, lock)
		holdtest.MustRelease(t, holdtest.Granted(t, srv, done).H)
	})
}
