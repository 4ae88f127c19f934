package locker_test

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

const (
	pollEvery = time.Second   // internal/queue's, with the default lock delay
	youngest  = pollEvery / 2 // a hold that is younger is not looked at
	pollBatch = 100
)

var manyHolds = flag.Int("holds", 150, "how many locks TestHeldLocksNeedNoGoroutineEachAndShortOnesNoRPC holds")

// A held lock costs memory, a hundredth of a transaction each half second, and once
// a sixteenth of one that writes. It has no goroutine, and one held for less than a
// quarter of a second has no price at all but its own two transactions.
func TestHeldLocksNeedNoGoroutineEachAndShortOnesNoRPC(t *testing.T) {
	n := *manyHolds
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		const travel = 100 * time.Microsecond // a round of polls must fit into its half second
		link.Delay(travel)
		sess, err := session.New(t.Context(), link.Client(), session.Options{
			TTL: 600 * time.Second, Clock: session.MonotonicClock(), StayLost: true, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sess.Close(t.Context()) }() // still cut off: it gives up after its CloseTimeout
		sent := func(during func()) map[string]int {
			before := link.Count()
			during()
			after := link.Count()
			for method := range after {
				after[method] -= before[method]
			}
			return after
		}

		first := lockMany(t, sess, "first", 1)
		firstHeld := time.Now() // the rounds of polls begin
		between := func() {     // two rounds of polls, and every hold is due
			time.Sleep(2*pollEvery + pollEvery - time.Since(firstHeld)%pollEvery)
		}
		between()
		const short = 100
		if got := sent(func() {
			for i := range short { // one by one, or they would go in fewer transactions
				lk := lockMany(t, sess, fmt.Sprint("short", i), 1)[0]
				go func() { // ends before the poll
					time.Sleep(youngest - 100*travel)
					if err := lk.Unlock(t.Context()); err != nil {
						t.Error(err)
					}
				}()
			}
			time.Sleep(2 * pollEvery)
		}); got["Txn"] != 2*short+2 || got["Range"]+got["Watch"]+got["LeaseTimeToLive"] != 0 {
			t.Errorf("%d locks held for a moment sent %v, beside one lock that is polled", short, got)
		}

		synctest.Wait()
		goroutines := runtime.NumGoroutine()
		locks := lockMany(t, sess, "long", n)
		synctest.Wait()
		if grown := runtime.NumGoroutine() - goroutines; grown > 10 { // the runtime's own come and go
			t.Errorf("%d goroutines more for %d locks more", grown, n)
		}

		between()
		const seconds = 2
		const polls = int(time.Second / pollEvery)
		// One Txn writes held_since to a few entries.
		perSecond := polls*((n+len(first)+pollBatch-1)/pollBatch) + 1
		if got := sent(func() { time.Sleep(seconds * time.Second) }); got["Txn"] != seconds*perSecond ||
			got["Range"]+got["LeaseTimeToLive"] > 2 {
			t.Errorf("%d locks held for %d s sent %v, want %d transactions a second", n, seconds, got, perSecond)
		}

		link.BlackHole()
		lease, err := lease.Open(sess).Await(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		<-lease.Context().Done()
		lost := time.Now()
		for _, lk := range locks {
			<-lk.Done()
			var why *holdfast.LostError
			if err := lk.Check(); !errors.As(err, &why) || why.Cause != holdfast.CauseExpired || why.Name != lk.Name() {
				t.Fatalf("%s: %v", lk.Name(), err)
			}
		}
		if took := time.Since(lost); took != 0 {
			t.Errorf("the last lock was told %v after the loss", took)
		}
	})
}

// lockMany acquires locks, several at a time.
func lockMany(t *testing.T, sess *session.Session, name string, n int) []*locker.Lock {
	locks := make([]*locker.Lock, n)
	var wg sync.WaitGroup
	const parallel = 100
	for g := range parallel {
		wg.Go(func() {
			for i := g; i < n; i += parallel {
				lk, err := locker.NewMutex(sess, fmt.Sprintf("%s/%06d", name, i)).Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				locks[i] = lk
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return locks
}
